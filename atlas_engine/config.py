"""Settings that are checked when they are built, and the folders that files live in.

A setting is declared once, with its default, help and range. `describe` lists the declarations, from which
command line flags and sliders are made:

    @dataclass(frozen=True, kw_only=True)
    class FewShot(Settings):
        shots: int = setting(4, help="images per class", low=1, high=64)
        head: str = setting("tip", help="adapter head", choices=("tip", "lpp", "none"))

    FewShot(shots=0)      # ConfigError: FewShot.shots is 0 but must be 1 to 64.

The folder functions return paths; they create nothing.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from atlas_engine.errors import ConfigError, unknown_name

__all__ = [
    "Setting",
    "Settings",
    "assets_folder",
    "bank_memory",
    "cache_folder",
    "describe",
    "setting",
    "software_version",
]

Value = TypeVar("Value")
Self = TypeVar("Self", bound="Settings")

_RULES = "atlas_rules"  # the key of our entry in a dataclass field's metadata


def setting(
    default: Value,
    *,
    help: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    unset: str = "",
) -> Value:
    """A dataclass field with a default, one line of help, and an inclusive range or the allowed words.

    `unset` says what None stands for, where it is allowed.
    """
    rules = {"help": help, "low": low, "high": high, "choices": choices, "unset": unset}
    field: Value = dataclasses.field(default=default, metadata={_RULES: rules})
    return field


@dataclass(frozen=True)
class Setting:
    """The declaration of one setting: enough to make a flag, a slider or an error message."""

    name: str
    type: Any  # int, float, str, bool, Path, or tuple[int | float | str, ...]
    optional: bool  # may also be None
    default: Any
    help: str
    low: float | None
    high: float | None
    choices: tuple[str, ...] | None
    unset: str = ""  # what None stands for, in words

    @property
    def item_type(self) -> type:
        """The type of one item: `int` for `tuple[int, ...]`; the type itself if it is no tuple."""
        kind: type = typing.get_args(self.type)[0] if self.many else self.type
        return kind

    @property
    def many(self) -> bool:
        """Whether the value is a tuple of items."""
        return typing.get_origin(self.type) is tuple

    @property
    def range(self) -> str:
        """The rule in words: `1 to 64`, `at least 1`, `tip, lpp or none`; empty without a rule."""
        if self.choices:
            return " or ".join(filter(None, [", ".join(self.choices[:-1]), self.choices[-1]]))
        if self.low is not None and self.high is not None:
            return f"{self.low} to {self.high}"
        if self.low is not None:
            return f"at least {self.low}"
        return "" if self.high is None else f"at most {self.high}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of configs: a frozen dataclass whose values are checked when it is built."""

    def __post_init__(self) -> None:
        for rule in describe(type(self)):
            checked = _check(type(self).__name__, rule, getattr(self, rule.name))
            object.__setattr__(self, rule.name, checked)  # the dataclass is frozen

    def as_dict(self) -> dict[str, Any]:
        """The values as plain JSON types; `from_dict` makes an equal object of them."""
        return {rule.name: _plain(getattr(self, rule.name)) for rule in describe(type(self))}

    @classmethod
    def from_dict(cls: type[Self], values: Mapping[str, Any]) -> Self:
        """Settings from (some of) the values of `as_dict`; ConfigError for an unknown name."""
        rules = {rule.name: rule for rule in describe(cls)}
        for name in values:
            if name not in rules:
                raise ConfigError(unknown_name(f"{cls.__name__} setting", name, rules))
        return cls(**{name: _from_plain(rules[name], value) for name, value in values.items()})


def describe(cls: type[Settings]) -> tuple[Setting, ...]:
    """The settings of a class, in the order of declaration."""
    hints = typing.get_type_hints(cls)
    return tuple(
        Setting(field.name, *_unwrap(hints[field.name]), field.default, **_rules_of(field))
        for field in dataclasses.fields(cls)
    )


def assets_folder() -> Path:
    """The folder of the bundled model, bank and examples: `ATLAS_ASSETS`, or the repository's `assets/`."""
    named = os.environ.get("ATLAS_ASSETS")
    return Path(named).expanduser() if named else Path(__file__).resolve().parent.parent / "assets"


def cache_folder() -> Path:
    """The folder of cached features: `ATLAS_CACHE`, or `atlas-studio` in the user's cache folder."""
    named = os.environ.get("ATLAS_CACHE")
    try:
        return Path(named).expanduser() if named else _user_cache_folder() / "atlas-studio"
    except RuntimeError:
        raise ConfigError(
            "this user has no home folder to keep a cache in. Set ATLAS_CACHE to one."
        ) from None


def bank_memory() -> float:
    """MiB that a bank may take in memory before it stays on disk: ATLAS_BANK_MEMORY, or 1024."""
    text = os.environ.get("ATLAS_BANK_MEMORY", "").strip() or "1024"
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found >= 0):
        raise ConfigError(f"ATLAS_BANK_MEMORY is '{text}' but must be a number of MiB, 0 or more.")
    return found


def software_version() -> str:
    """The version of this project: of the clone it runs from, or else of the installed package."""
    clone = Path(__file__).resolve().parent.parent / "pyproject.toml"
    if clone.is_file():
        found = re.search(r'^version = "([^"]+)"', clone.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if found:
            return found[1]
    try:
        return metadata.version("atlas-studio")
    except metadata.PackageNotFoundError:
        return "unknown"


def _user_cache_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    return Path(xdg) if Path(xdg).is_absolute() else Path.home() / ".cache"


def _rules_of(field: dataclasses.Field[Any]) -> dict[str, Any]:
    if _RULES not in field.metadata:
        raise TypeError(f"field '{field.name}' must be declared with setting(default, help=...).")
    return dict(field.metadata[_RULES])


def _unwrap(hint: object) -> tuple[Any, bool]:
    """`int | None` as (int, True), and `int` as (int, False)."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    kinds = typing.get_args(hint)
    return next(kind for kind in kinds if kind is not type(None)), type(None) in kinds


def _check(owner: str, rule: Setting, value: object) -> object:
    """The value, with whole numbers as floats where the setting is one; ConfigError if it breaks the rule."""
    if value is None and rule.optional:
        return None
    name = f"{owner}.{rule.name}"
    if not rule.many:
        return _check_item(name, rule, value)
    if not isinstance(value, tuple):
        raise ConfigError(f"{name} is {value!r} but must be a tuple, each item {_kind_words(rule)}.")
    return tuple(_check_item(name, rule, item) for item in value)


def _check_item(name: str, rule: Setting, value: object) -> object:
    kind = rule.item_type
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind and not (kind is Path and isinstance(value, Path)):
        raise ConfigError(f"{name} is {value!r} but must be {_kind_words(rule)}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} is {value!r} but must be a finite number.")
    if rule.choices is not None and value not in rule.choices:
        raise ConfigError(unknown_name(name, str(value), rule.choices))
    if isinstance(value, (int, float)) and not _in_range(rule, value):
        raise ConfigError(f"{name} is {value!r} but must be {rule.range}.")
    return value


def _in_range(rule: Setting, value: float) -> bool:
    return (rule.low is None or value >= rule.low) and (rule.high is None or value <= rule.high)


def _kind_words(rule: Setting) -> str:
    words = {int: "a whole number", float: "a number", str: "text", bool: "True or False", Path: "a path"}
    return words[rule.item_type]


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _from_plain(rule: Setting, value: object) -> object:
    if rule.many and isinstance(value, list):
        return tuple(_from_plain(dataclasses.replace(rule, type=rule.item_type), item) for item in value)
    return Path(value) if rule.type is Path and isinstance(value, str) else value
