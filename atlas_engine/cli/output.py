"""Where words go: data to stdout, talk to stderr, text and JSON to files. Knows nothing of commands."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from atlas_engine.cli.command import MisuseError
from atlas_engine.files import atomic_write
from atlas_engine.views.tables import printable

__all__ = [
    "add_json_file",
    "add_json_flag",
    "emit",
    "emit_json",
    "say",
    "writable",
    "write_json",
    "write_text",
]


def emit(text: str) -> None:
    """Data, for the next program or for the reader: one text on stdout."""
    print(text)


def emit_json(data: object) -> None:
    """Data as JSON on stdout."""
    emit(_json_text(data))


def say(text: str) -> None:
    """Talk, for the person at the keyboard: one line on stderr, whatever the text holds."""
    print(f"atlas: {printable(text)}", file=sys.stderr)


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """`--json`: the command prints JSON in place of text."""
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")


def add_json_file(parser: argparse.ArgumentParser) -> None:
    """`--json OUT`: the command also writes its result to a file; its folder must exist beforehand."""
    parser.add_argument("--json", metavar="OUT", type=writable, help="also write the result to OUT as JSON")


def write_json(path: Path, data: object) -> None:
    """Write JSON so that a reader sees the old file or the whole new one."""
    write_text(path, _json_text(data) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a whole file, or leave what was there and say why."""
    try:
        with atomic_write(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MisuseError(f"cannot write {path} ({error.strerror}). Choose another file.") from error


def writable(text: str) -> Path:
    """The path of a file to write, for argparse: what cannot be written is refused before the work."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"'{text}' cannot be written: it needs a file name in a folder that exists"
        )
    return path


def _json_text(data: object) -> str:
    return json.dumps(data, indent=2, allow_nan=False)
