"""What commands are made of: their class, the flags made from config classes, and options that several have.

    @command("atlas adapt few-shot my_photos", "atlas adapt few-shot my_photos.zip --json")
    @click.argument("folder", metavar="DIR", type=PATH, help="one sub-folder a class")
    @model_option
    @settings(FewShotConfig)
    @json_flag
    def few_shot(*, folder: Path, model: str, config: FewShotConfig, as_json: bool) -> None:
        \"""Learn from a few labelled images.\"""

A setting `shots: int = setting(4, help="images per class", low=1)` becomes `--shots N`, with the help "images
per class (at least 1; default 4)"; the command gets all of them as one checked config.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas_engine.config import Setting, Settings, describe
from atlas_engine.errors import ConfigError, EvalError

if TYPE_CHECKING:
    from atlas_engine.executors import Executor

__all__ = [
    "PATH",
    "AtlasCommand",
    "CommandFunction",
    "Decorator",
    "SeveralValues",
    "Spread",
    "all_of",
    "bank_option",
    "command",
    "distinct_names",
    "figure_option",
    "folders_argument",
    "images_argument",
    "json_file_option",
    "json_flag",
    "markdown_option",
    "method_option",
    "model_option",
    "parse_words",
    "positive",
    "recipe_option",
    "seed_option",
    "settings",
    "skip_unreadable_option",
    "spread_options",
    "templates_option",
    "track_pattern_option",
    "writable",
    "write_examples",
]

PATH = click.Path(path_type=Path)

CommandFunction = Callable[..., None]
Decorator = Callable[[CommandFunction], CommandFunction]


# ---- the class of a command


def command(*examples: str, note: str = "") -> Callable[[CommandFunction], AtlasCommand]:
    """A decorator that makes a function a command; its docstring is the help, which the examples end."""

    def decorate(function: CommandFunction) -> AtlasCommand:
        made = click.command(cls=AtlasCommand)(function)
        made.examples, made.note = examples, note
        return made

    return decorate


class AtlasCommand(click.Command):
    """A click command whose help ends with examples, and whose `SeveralValues` end at the next flag."""

    examples: Sequence[str] = ()
    note: str = ""  # the paragraph before the examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse `--query a b` as `--query a --query b`, for to click an option has one value at a time."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        flags = {flag: option for option in options for flag in (*option.opts, *option.secondary_opts)}
        words, left = [], list(args)
        while left and left[0] != "--":
            word = left.pop(0)
            option = flags.get(word)
            if option is None or option.is_flag:
                words.append(word)
                continue
            if not left or left[0] in flags:  # click would take the next flag for the value
                raise click.BadOptionUsage(word, f"Option '{word}' requires an argument.", ctx)
            values = [left.pop(0)]
            while isinstance(option, SeveralValues) and left and not left[0].startswith("-"):
                values.append(left.pop(0))
            words += [each for value in values for each in (word, value)]
        return super().parse_args(ctx, [*words, *left])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the note, if there is one, and the examples."""
        if self.note:
            formatter.write_paragraph()
            formatter.write_text(self.note)
        write_examples(formatter, self.examples)


class SeveralValues(click.Option):
    """An option that takes every word up to the next flag: `--query a.jpg b.jpg`. Declare it `multiple`."""


def write_examples(formatter: click.HelpFormatter, examples: Iterable[str]) -> None:
    """End a help page with examples, a line each however long."""
    formatter.write("\nExamples:\n" + "".join(f"  {example}\n" for example in examples))


# ---- flags from config classes


def settings(cls: type[Settings], name: str = "config") -> Decorator:
    """A flag for every setting of `cls`: `--learning-rate X`, `--[no-]quiet`, `--seeds N,N`.

    The function gets them as one keyword argument `name`; a value out of range is misuse.
    """
    # the class's own settings first, then those that it inherits
    rules = sorted(describe(cls), key=lambda rule: rule.name not in cls.__annotations__)

    def decorate(function: CommandFunction) -> CommandFunction:
        @functools.wraps(function)
        def with_config(**values: object) -> None:
            chosen = {rule.name: values.pop(rule.name) for rule in rules}
            try:
                config = cls(**chosen)
            except ConfigError as error:
                raise click.UsageError(str(error)) from error
            function(**values, **{name: config})

        return all_of(*map(_setting_option, rules))(with_config)

    return decorate


def _setting_option(rule: Setting) -> Decorator:
    flag, more = f"--{rule.name.replace('_', '-')}", {"default": rule.default, "help": _setting_help(rule)}
    if rule.type is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", rule.name, **more)
    return click.option(flag, rule.name, type=_SettingType(rule), metavar=_setting_metavar(rule), **more)


_ITEM_TYPES: dict[type, click.ParamType[Any]] = {
    int: click.INT, float: click.FLOAT, str: click.STRING, Path: PATH,
}  # fmt: skip


class _SettingType(click.ParamType[Any]):
    """Text as a value of the setting's type: `1,2` for a tuple, `none` for None."""

    def __init__(self, rule: Setting) -> None:
        self.rule, self.name = rule, rule.item_type.__name__

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):  # the default
            return value
        if self.rule.optional and value == "none" and "none" not in (self.rule.choices or ()):
            return None
        item = _ITEM_TYPES[self.rule.item_type]
        if self.rule.many:
            parts = filter(None, map(str.strip, value.split(",")))
            return tuple(item.convert(part, param, ctx) for part in parts)
        return item.convert(value, param, ctx)


def _setting_metavar(rule: Setting) -> str:
    if rule.choices:
        return "|".join(rule.choices)
    word = {int: "N", float: "X", str: "TEXT", Path: "PATH"}[rule.item_type]
    return f"{word},{word}" if rule.many else word


def _setting_help(rule: Setting) -> str:
    notes = [] if rule.choices or not rule.range else [rule.range]
    return f"{rule.help} ({'; '.join([*notes, f'default {_default_words(rule)}'])})"


def _default_words(rule: Setting) -> str:
    default = rule.default
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    if default is None:
        return f"none, {rule.unset}" if rule.unset else "none"
    return str(default)


# ---- types: text to value, or a complaint before any work is done


def parse_words(text: str) -> tuple[str, ...]:
    """Words with commas between them, at least one."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise click.BadParameter("give at least one, or several with commas between them.")
    return words


def positive(text: str | int) -> int:
    """A whole number of at least 1."""
    if not (str(text).isdecimal() and int(text)):
        raise click.BadParameter(f"'{text}' must be a whole number of at least 1.")
    return int(text)


def writable(text: str) -> Path:
    """The path of a file to write; its folder must exist beforehand."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise click.BadParameter(f"'{text}' cannot be written: it needs a file name in a folder that exists.")
    return path


def _svg(text: str) -> Path:
    if Path(text).suffix.lower() != ".svg":
        raise click.BadParameter(f"'{text}' must end in .svg.")
    return writable(text)


# ---- options that several commands have, each with its words and its default said once


def all_of(*decorators: Decorator) -> Decorator:
    """Several options as one decorator, in the order given."""

    def decorate(function: CommandFunction) -> CommandFunction:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


images_argument = click.argument(
    "images", nargs=-1, required=True, metavar="IMAGE...", type=PATH,
    help="JPEG, PNG or WEBP files, or folders of them",
)  # fmt: skip
json_flag = click.option("--json", "as_json", is_flag=True, help="print JSON on stdout")
json_file_option = click.option(
    "--json", "json_file", metavar="OUT", type=writable, help="also write the result to OUT as JSON"
)
markdown_option = click.option(
    "--markdown", type=writable, metavar="OUT", help="also write the tables to OUT as markdown"
)
model_option = click.option(
    "--model", default="bundled", metavar="M", help="bundled (default), ARCH/PRETRAINED, …"
)
recipe_option = click.option("-o", "--output", metavar="R", type=writable, help="the recipe file to write")
skip_unreadable_option = click.option(
    "--skip-unreadable", is_flag=True, help="leave out images that cannot be read"
)
templates_option = click.option(
    "--templates", multiple=True, metavar="SET",
    help="a template set, or a sentence with {} (default: the model's own); may be repeated",
)  # fmt: skip
track_pattern_option = click.option(
    "--track-pattern", metavar="RE", help="finds in a file's name what its near-duplicates share"
)


def spread_options(what: str) -> Decorator:
    """`--on WHERE` and `--threads N`, for what is done side by side; the command gets `spread`."""

    def decorate(function: CommandFunction) -> CommandFunction:
        @functools.wraps(function)
        def with_spread(*, on: str | None, threads: int | None, **values: object) -> None:
            function(spread=Spread(on or (threads and "local") or None, threads), **values)

        return all_of(
            click.option(
                "--on", metavar="WHERE",
                help=f"{what} side by side, with equal bits: local, processes[:N], ray or ray://HOST:PORT",
            ),
            click.option(
                "--threads", type=positive, metavar="N",
                help="torch's threads in each task, which change the last bits (with --on: 1)",
            ),
        )(with_spread)  # fmt: skip

    return decorate


@dataclass(frozen=True)
class Spread:
    """Where a command's tasks are carried out: `on` as typed, or None, and threads of torch in each."""

    on: str | None
    given_threads: int | None

    @property
    def threads(self) -> int | None:
        """The threads of a task: one where tasks are side by side; without `--on`, as many as torch takes."""
        return self.given_threads or (1 if self.on else None)

    def open(self) -> Executor:
        """The executor, to be closed."""
        from atlas_engine.executors import open_executor

        return open_executor(self.on or "local", threads=self.threads)


def folders_argument(about: str = "one sub-folder a class in each") -> Decorator:
    """`DIR...`: one folder of labelled images, or several."""
    return click.argument("folders", nargs=-1, required=True, type=PATH, metavar="DIR...", help=about)


def bank_option(about: str = "a bank file (default: the model's own)") -> Decorator:
    """`--bank FILE`."""
    return click.option("--bank", metavar="FILE", type=PATH, help=about)


def method_option(names: Iterable[str], *, flag: str = "--method", note: str = "") -> Decorator:
    """`--method NAME`, of a table's names; `auto` is the default."""
    others = ", ".join(name for name in names if name != "auto")
    about = f"auto (default), {others}" + (f"; {note}" if note else "")
    return click.option(flag, default="auto", metavar="NAME", help=about)


def seed_option(of: str) -> Decorator:
    """`--seed N`, and what is drawn by it."""
    return click.option("--seed", type=int, default=0, metavar="N", help=f"seed of {of} (default 0)")


def figure_option(about: str) -> Decorator:
    """`--figure OUT.svg` in a folder that exists."""
    return click.option("--figure", type=_svg, metavar="OUT.svg", help=about)


def distinct_names(paths: Sequence[Path | str]) -> list[str]:
    """A name for each folder: its own, with as many of those above it as tell it from the others.

    >>> distinct_names(["data/pacs/photo", "data/office/photo", "data/pets"])
    ['pacs/photo', 'office/photo', 'pets']
    """
    parts = [Path(path).resolve().parts for path in paths]
    for one in parts:
        if parts.count(one) > 1:
            raise EvalError(f"{Path(*one).name} is given twice. Name each folder once.")
    return ["/".join(_shortest_ending(own, parts)) for own in parts]


def _shortest_ending(own: Sequence[str], parts: Sequence[Sequence[str]]) -> Sequence[str]:
    """The fewest last parts of a path that no other path ends in."""
    endings = (own[-count:] for count in range(1, len(own) + 1))
    return next(end for end in endings if sum(other[-len(end) :] == end for other in parts) == 1)
