"""`atlas`: a click group whose commands are imported when they are used, with its errors and exit codes.

`COMMANDS` is the table of commands. Help is made from its rows, so `atlas --help` imports neither torch nor
any command. To add a command:

1. Write a function with `options.command` and click's own decorators in `cli/<group>.py`.
2. Add its row to `COMMANDS`: `"show": CommandRow("atlas_engine.cli.show:show", "Print a recipe.")`.

Another package adds rows of its own by an entry point that leads to such a table:

    [project.entry-points."atlas_engine.commands"]
    mine = "my_package.commands:COMMANDS"

The rules, which `tests/cli/test_main.py` holds every command to: stdout is data and stderr is talk (`output`,
`progress`); flags come from config classes (`options`); `--help` ends with two examples. Exit code 0 is done,
1 failed, 2 typed wrongly, 130 stopped by Ctrl-C, 141 nobody reads stdout. An error is one line; with
ATLAS_DEBUG=1 its traceback is shown as well.
"""

from __future__ import annotations

import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, NoReturn

import click

from atlas_engine.cli.options import write_examples
from atlas_engine.cli.output import emit, say
from atlas_engine.config import software_version
from atlas_engine.errors import AtlasError, unknown_name

__all__ = [
    "COMMANDS",
    "WORDS",
    "CommandRow",
    "CommandTable",
    "GroupRow",
    "LazyGroup",
    "atlas_group",
    "installed_commands",
    "main",
]

DONE, FAILED, INTERRUPTED, PIPE_CLOSED = 0, 1, 130, 141
ENTRY_POINTS = "atlas_engine.commands"
WORDS = "atlas.words"
"""Where a context's `meta` has the words that the command was typed with, so that it can be repeated."""
PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"  # of a clone; no wheel has it
STUDIES = ("bank dummy", "bank sets", "bench", "eval", "model")  # documented commands that the studies add


class CommandRow(NamedTuple):
    """A command: `module:name` of a click command, imported when it is used, and one line about it."""

    target: str
    summary: str


class GroupRow(NamedTuple):
    """A group of commands: one line about it, and the two examples of its help."""

    summary: str
    examples: tuple[str, str]


CommandTable = Mapping[str, CommandRow | GroupRow]
"""Rows by the words to type after `atlas`, each group before its commands."""

COMMANDS: CommandTable = {
    "adapt": GroupRow(
        "Adapt a model to your classes.",
        ("atlas adapt few-shot my_photos -o mine.atlas.safetensors", "atlas adapt few-shot --help"),
    ),
    "adapt few-shot": CommandRow("atlas_engine.cli.adapt:few_shot", "Learn from a few labelled images."),
    "adapt test-time": CommandRow(
        "atlas_engine.cli.adapt_unlabelled:test_time", "Learn from images without labels."
    ),
    "adapt negate": CommandRow("atlas_engine.cli.adapt:negate", "Forget a set of classes."),
    "adapt add": CommandRow("atlas_engine.cli.adapt:add", "One model for several tasks."),
    "bank": GroupRow(
        "Banks of task vectors: what an adaptation mixes.",
        ("atlas bank list", "atlas bank show bank.safetensors"),
    ),
    "bank list": CommandRow("atlas_engine.cli.bank:list_banks", "List banks: here, and public ones."),
    "bank show": CommandRow("atlas_engine.cli.bank:show", "Print what a bank holds."),
    "bank verify": CommandRow("atlas_engine.cli.bank:verify", "Check a bank file, and that it fits a model."),
    "bank compress": CommandRow("atlas_engine.cli.bank:compress", "Store a bank in fewer bytes."),
    "bank plan": CommandRow("atlas_engine.cli.bank_plan:plan", "Say how much memory a few-shot run needs."),
    "bank residency": CommandRow(
        "atlas_engine.cli.bank_residency:residency", "Say where a bank's vectors are."
    ),
    "bank train": CommandRow(
        "atlas_engine.cli.bank_train:train", "Make a task vector from each folder of classes."
    ),
    "bank import": CommandRow("atlas_engine.cli.bank:import_checkpoints", "Make a bank from checkpoints."),
    "cache": GroupRow(
        "The cache of image features and class names.", ("atlas cache size", "atlas cache clear")
    ),
    "cache path": CommandRow("atlas_engine.cli.system:cache_path", "Print the folder of the cache."),
    "cache size": CommandRow("atlas_engine.cli.system:cache_size", "Print how much room the cache takes."),
    "cache clear": CommandRow("atlas_engine.cli.system:cache_clear", "Empty the cache."),
    "check": CommandRow(
        "atlas_engine.cli.check:check", "Say which of your images look mislabelled, odd or doubled."
    ),
    "doctor": CommandRow(
        "atlas_engine.cli.system:doctor", "Look over this installation, and say what is missing."
    ),
    "export": CommandRow(
        "atlas_engine.cli.export:export", "Write a recipe's model as ONNX, a web page or other formats."
    ),
    "features": CommandRow(
        "atlas_engine.cli.features:features", "Write the features of every image of a folder."
    ),
    "predict": CommandRow("atlas_engine.cli.predict:predict", "Say which of your classes each image shows."),
    "prepare": CommandRow("atlas_engine.cli.prepare:prepare", "Fetch a model and build its bank, once."),
    "pull": CommandRow("atlas_engine.cli.hub:pull", "Fetch a recipe or a bank from the model hub."),
    "push": CommandRow("atlas_engine.cli.hub:push", "Write a recipe or a bank to the model hub."),
    "show": CommandRow("atlas_engine.cli.show:show", "Print a recipe."),
}


def main(argv: Sequence[str] | None = None, *, command: click.Command | None = None) -> int:
    """Run one command line, `atlas` unless another command is given, and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    command, code = command or atlas_group(), DONE
    try:
        # click's own main() has other exit codes, and complains in several lines
        with command.make_context("atlas", list(words)) as context:
            context.meta[WORDS] = words
            command.invoke(context)
    except click.exceptions.Exit as done:  # --help, --version, or a command that gives its own code
        code = done.exit_code
    except click.exceptions.NoArgsIsHelpError as overview:
        overview.show()
        code = overview.exit_code
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Python would complain again when it closes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = PIPE_CLOSED
    except KeyboardInterrupt:
        say("stopped.")
        code = INTERRUPTED
    except click.ClickException as error:
        _show_traceback_if_debugging()
        say(_with_pointer_to_help(error))
        code = error.exit_code
    except AtlasError as error:
        _show_traceback_if_debugging()
        say(str(error))
        code = FAILED
    except Exception as error:  # the border: nothing below may end in a traceback
        _show_traceback_if_debugging()
        say(f"unexpected {type(error).__name__}: {error}. This is a bug; ATLAS_DEBUG=1 shows where.")
        code = FAILED
    return code


class LazyGroup(click.Group):
    """The commands one word below `path` in a table; `extensions` gives rows that the table lacks.

    Extensions are looked up only where the table does not know a command, and where all are listed.
    """

    def __init__(
        self,
        table: CommandTable,
        row: GroupRow,
        *,
        path: str = "",
        extensions: Callable[[], CommandTable] = dict,
        params: list[click.Parameter] | None = None,
    ) -> None:
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
        super().__init__(path or "atlas", help=row.summary, params=params, context_settings=settings)
        self.table, self.path, self.extensions, self.examples = table, path, extensions, row.examples

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None where there is no such row."""
        words = f"{self.path} {cmd_name}".strip()
        row = self.table.get(words) or self.extensions().get(words)
        if isinstance(row, GroupRow):
            return LazyGroup(self.table, row, path=words, extensions=self.extensions)
        return None if row is None else _load(row.target)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands, in the order of the table."""
        return list(self._summaries())

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str, click.Command, list[str]]:
        """The name and the command that the first word stands for, and the words that are left for it."""
        command = self.get_command(ctx, args[0])
        return (args[0], command, args[1:]) if command is not None else self._refuse(ctx, args[0])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse a group without a command; `atlas` alone prints its help instead."""
        if not args and self.path:
            ctx.fail(f"'{ctx.command_path}' needs one of: {', '.join(self.list_commands(ctx))}.")
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write names and summaries, off the rows."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries().items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """End the help with two examples."""
        write_examples(formatter, self.examples)

    def _summaries(self) -> dict[str, str]:
        """The line about each command one word below this group, by its name."""
        rows = {**self.table, **self.extensions(), **self.table}  # the table's own come first, and win
        split = {words.rpartition(" "): row.summary for words, row in rows.items()}
        return {name: summary for (path, _, name), summary in split.items() if path == self.path}

    def _refuse(self, ctx: click.Context, name: str) -> NoReturn:
        words = f"{self.path} {name}".strip()
        if words in STUDIES:
            raise click.ClickException(
                f"'atlas {words}' belongs to the studies, which are not installed. They are in the "
                "repository: run it from a clone."
            )
        kind = f"'{ctx.command_path}' command" if self.path else "command"
        ctx.fail(unknown_name(kind, name, self.list_commands(ctx)))


def installed_commands() -> dict[str, CommandRow | GroupRow]:
    """The rows that packages add by entry points, installed or declared by the clone that this runs from."""
    rows: dict[str, CommandRow | GroupRow] = {}
    for entry in (*metadata.entry_points(group=ENTRY_POINTS), *_entry_points_of_clone()):
        try:
            rows |= entry.load()
        except ModuleNotFoundError as error:
            if error.name != entry.module.partition(".")[0]:
                raise  # the package is there, and lacks something else
    return rows


def _entry_points_of_clone() -> list[metadata.EntryPoint]:
    """What pyproject.toml declares, for a clone that is not installed, or was before this was declared."""
    text = PYPROJECT.read_text(encoding="utf-8") if PYPROJECT.is_file() else ""
    head = re.escape(f'[project.entry-points."{ENTRY_POINTS}"]')
    section = re.search(rf"^{head}\n((?:\w.*\n)*)", text, flags=re.MULTILINE)
    rows = re.findall(r'^(\S+) = "(.+)"$', section[1] if section else "", flags=re.MULTILINE)
    return [metadata.EntryPoint(name, target, ENTRY_POINTS) for name, target in rows]


def atlas_group() -> LazyGroup:
    """The command `atlas` itself."""
    about = "Teach CLIP your own classes from a handful of photos, by learning how to mix task vectors."
    version = click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
        help="Print the version.",
    )  # fmt: skip
    row = GroupRow(about, ("atlas doctor", "atlas cache size --json"))
    return LazyGroup(COMMANDS, row, extensions=installed_commands, params=[version])


def _print_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        emit(f"atlas {software_version()}")
        ctx.exit()


def _load(target: str) -> click.Command:
    command = pkgutil.resolve_name(target)
    if not isinstance(command, click.Command):
        raise TypeError(f"{target} is {type(command).__name__}, not a click command")
    return command


def _with_pointer_to_help(error: click.ClickException) -> str:
    """What is wrong; where words were typed wrongly, also which help to read."""
    text = error.format_message()
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return text
    end = "" if text.endswith((".", "?", "?)")) else "."
    return f"{text}{end} See: {error.ctx.command_path} --help"


def _show_traceback_if_debugging() -> None:
    if os.environ.get("ATLAS_DEBUG") == "1":
        traceback.print_exc()
