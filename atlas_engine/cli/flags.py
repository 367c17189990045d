"""Flags made from config classes. Knows nothing of any one config.

A setting `shots: int = setting(4, help="images per class", low=1)` becomes `--shots N`, with the help
"images per class (at least 1; default 4)". Only flags that were typed are handed on: a default has one home.
"""

from __future__ import annotations

import argparse
from typing import Any, TypeVar

from atlas_engine.cli.command import MisuseError
from atlas_engine.config import Setting, Settings, describe
from atlas_engine.errors import ConfigError

__all__ = ["add_settings", "settings_from"]

Config = TypeVar("Config", bound=Settings)

_METAVARS = {"int": "N", "float": "X", "str": "TEXT", "Path": "PATH"}


def add_settings(parser: argparse.ArgumentParser, cls: type[Settings]) -> None:
    """A flag for every setting of the class: `--learning-rate X`, `--[no-]quiet`, `--seeds N,N`."""
    group = parser.add_argument_group("settings")
    for rule in describe(cls):
        options: dict[str, Any] = {"dest": rule.name, "default": argparse.SUPPRESS, "help": _help(rule)}
        if rule.type is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options |= {"type": _Reader(rule), "metavar": _metavar(rule)}
        group.add_argument("--" + rule.name.replace("_", "-"), **options)


def settings_from(args: argparse.Namespace, cls: type[Config]) -> Config:
    """The settings as typed, and the defaults for the rest; a value out of range is misuse."""
    given = {rule.name: getattr(args, rule.name) for rule in describe(cls) if hasattr(args, rule.name)}
    try:
        return cls(**given)
    except ConfigError as error:
        raise MisuseError(str(error)) from error


class _Reader:
    """Text to a value of the setting's type; argparse calls it, and names the flag when it complains."""

    def __init__(self, rule: Setting) -> None:
        self.rule = rule
        self.__name__ = rule.item_type.__name__  # argparse says "invalid int value: 'x'"

    def __call__(self, text: str) -> object:
        if self.rule.optional and text == "none" and "none" not in (self.rule.choices or ()):
            return None
        if self.rule.many:
            return tuple(self.rule.item_type(part.strip()) for part in text.split(",") if part.strip())
        return self.rule.item_type(text)


def _metavar(rule: Setting) -> str:
    if rule.choices:
        return "|".join(rule.choices)
    word = _METAVARS[rule.item_type.__name__]
    return f"{word},{word}" if rule.many else word


def _help(rule: Setting) -> str:
    notes = [] if rule.choices or not rule.range else [rule.range]
    notes.append(f"default {_default_words(rule.default)}")
    return f"{rule.help} ({'; '.join(notes)})".replace("%", "%%")


def _default_words(default: object) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return "none" if default is None else str(default)
