"""What the commands of `atlas eval` share: words, figures, and rows that outlive an interruption.

Knows nothing of any one study.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.files import replacing

if TYPE_CHECKING:
    from atlas_engine.study.ledger import Ledger

__all__ = ["ledger_beside", "svg_file", "word_list", "write_text"]

ROWS_ENDING = ".rows"


def ledger_beside(output: Path | None) -> Ledger:
    """What was measured already, from OUT.rows beside OUT; in memory alone where nothing is written."""
    from atlas_engine.study.ledger import Ledger

    return Ledger(output.with_name(output.name + ROWS_ENDING) if output else None)


def write_text(path: Path, text: str) -> None:
    """Write a whole file, or leave what was there."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def svg_file(text: str) -> Path:
    """The path of a figure, if it ends as one."""
    if Path(text).suffix.lower() != ".svg":
        raise argparse.ArgumentTypeError(f"'{text}' must end in .svg")
    return Path(text)


def word_list(text: str) -> tuple[str, ...]:
    """Words with commas between them, at least one."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise argparse.ArgumentTypeError("give at least one, or several with commas between them")
    return words
