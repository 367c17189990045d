"""The frame around every command: dispatch, help, errors, exit codes. Knows nothing of what commands do.

To add a command:

1. Write it in `cli/<noun>.py`, one file per noun, one `Command` per verb. Import torch and the like inside
   the functions, so that help stays instant:

       def arguments(parser): add_settings(parser, FewShot); add_json_flag(parser)
       def run(args): emit(...); return 0
       SHOW = Command(arguments, run, examples=("atlas show r.atlas", "atlas show r.atlas --json"))

2. Add its row to `cli/table.py`: `Row("show", "", "Print a recipe.", "atlas_engine.cli.show:SHOW")`.
   A noun with several verbs has a row for each, and an entry in `GROUPS`.

That is all: `tests/cli/test_frame.py` then holds its help and examples to the rules.

The rules: stdout is data and stderr is talk (`output`, `progress`); flags come from config classes (`flags`);
exit code 0 is done, 1 failed, 2 typed wrongly, 130 stopped by Ctrl-C. An AtlasError is one line; with
ATLAS_DEBUG=1 its traceback is shown as well.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import NoReturn

from atlas_engine.cli.command import Command, Group, MisuseError, Row
from atlas_engine.cli.output import emit, say
from atlas_engine.cli.table import EXAMPLES, GROUPS, ROWS
from atlas_engine.config import software_version
from atlas_engine.errors import AtlasError, unknown_name

__all__ = ["command_parser", "main"]

DONE, FAILED, MISUSED, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141
HELP_FLAGS = ("-h", "--help")


def main(
    argv: Sequence[str] | None = None,
    *,
    rows: Sequence[Row] = ROWS,
    groups: Mapping[str, Group] = GROUPS,
) -> int:
    """Run one command line, and give its exit code."""
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv), rows, groups)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Python would complain again when it closes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        say("stopped.")
        return INTERRUPTED
    except AtlasError as error:
        _show_traceback_if_debugging()
        say(str(error))
        return MISUSED if isinstance(error, MisuseError) else FAILED
    except Exception as error:  # the border: nothing below may end in a traceback
        _show_traceback_if_debugging()
        say(f"unexpected {type(error).__name__}: {error}. This is a bug; ATLAS_DEBUG=1 shows where.")
        return FAILED
    return code


def command_parser(row: Row, command: Command) -> argparse.ArgumentParser:
    """The parser of one command; its help ends with the command's two examples."""
    parser = _Parser(
        prog=row.title,
        description="\n\n".join(filter(None, (row.summary, command.about))),
        epilog=_examples(command.examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.arguments(parser)
    return parser


class _Parser(argparse.ArgumentParser):
    """An argparse whose complaints are one line and offer the nearest flag."""

    def error(self, message: str) -> NoReturn:
        known = [flag for action in self._actions for flag in action.option_strings]
        wrong = message.rpartition(" ")[2].partition("=")[0] if message.startswith("unrecognized") else ""
        near = difflib.get_close_matches(wrong, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise MisuseError(f"{message}.{hint} See: {self.prog} --help")


def _dispatch(words: list[str], rows: Sequence[Row], groups: Mapping[str, Group]) -> int:
    if not words:
        print(_overview(rows, groups), file=sys.stderr)
        return MISUSED
    noun, *rest = words
    if noun in HELP_FLAGS:
        emit(_overview(rows, groups))
        return DONE
    if noun == "--version":
        emit(f"atlas {software_version()}")
        return DONE
    verbs = {row.verb: row for row in rows if row.noun == noun}
    if not verbs:
        raise MisuseError(unknown_name("command", noun, {row.noun for row in rows}))
    if "" in verbs:
        return _run(verbs[""], rest)
    if rest and rest[0] in HELP_FLAGS:
        emit(_group_help(noun, groups[noun], verbs))
        return DONE
    if not rest:
        raise MisuseError(f"'atlas {noun}' needs one of: {', '.join(verbs)}. See: atlas {noun} --help")
    if rest[0] not in verbs:
        raise MisuseError(unknown_name(f"'atlas {noun}' command", rest[0], verbs))
    return _run(verbs[rest[0]], rest[1:])


def _run(row: Row, words: list[str]) -> int:
    command = row.load()
    try:
        args = command_parser(row, command).parse_args(words)
    except SystemExit:  # only --help leaves this way: complaints are errors
        return DONE
    return command.run(args)


def _overview(rows: Sequence[Row], groups: Mapping[str, Group]) -> str:
    summaries = {row.noun: groups[row.noun].summary if row.verb else row.summary for row in rows}
    return "\n\n".join(
        [
            "usage: atlas COMMAND …",
            "Teach CLIP your own classes from a handful of photos, by learning how to mix task vectors.",
            "commands:\n" + _aligned(summaries),
            "`atlas COMMAND --help` tells more; `atlas --version` prints the version.",
            _examples(EXAMPLES),
        ]
    )


def _group_help(noun: str, group: Group, verbs: Mapping[str, Row]) -> str:
    commands = _aligned({verb: row.summary for verb, row in verbs.items()})
    parts = [
        f"usage: atlas {noun} COMMAND …",
        group.summary,
        f"commands:\n{commands}",
        _examples(group.examples),
    ]
    return "\n\n".join(parts)


def _aligned(lines: Mapping[str, str]) -> str:
    width = max(map(len, lines))
    return "\n".join(f"  {name:{width}}  {summary}" for name, summary in lines.items())


def _examples(examples: tuple[str, str]) -> str:
    return "examples:\n" + "\n".join(f"  {example}" for example in examples)


def _show_traceback_if_debugging() -> None:
    if os.environ.get("ATLAS_DEBUG") == "1":
        traceback.print_exc()
