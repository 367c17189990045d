"""Rows as aligned plain text or as a markdown table.

>>> print(table([("otter", 0.91), ("sea lion", 0.0625)], ("class", "probability")))
class     probability
otter            0.91
sea lion       0.0625
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

__all__ = ["markdown_table", "printable", "table"]

Rows = Sequence[Sequence[object]]


def table(rows: Rows, columns: Sequence[str]) -> str:
    """Plain text with aligned columns: numbers right, words left; no line ends in a space."""
    cells = _cells(rows, columns)
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    right = _numeric_columns(rows, columns)
    lines = ("  ".join(map(_pad, line, widths, right)).rstrip() for line in cells)
    return "\n".join(lines)


def markdown_table(rows: Rows, columns: Sequence[str]) -> str:
    """The same rows as a markdown table."""
    header, *body = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in _cells(rows, columns))
    rule = " | ".join("---:" if right else "---" for right in _numeric_columns(rows, columns))
    return "\n".join(f"| {line} |" for line in (header, rule, *body))


def printable(text: str) -> str:
    """The text on one line and without control characters, since a file may have any name.

    >>> printable("a\\nb\\x1b[31m")
    'a b\\ufffd[31m'
    """
    one_line = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in one_line)


def _cells(rows: Rows, columns: Sequence[str]) -> list[list[str]]:
    wrong = next((row for row in rows if len(row) != len(columns)), None)
    if wrong is not None:
        raise ValueError(f"a row has {len(wrong)} cells but the table has {len(columns)} columns: {wrong!r}.")
    return [[_cell(value) for value in line] for line in (columns, *rows)]


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))


def _numeric_columns(rows: Rows, columns: Sequence[str]) -> list[bool]:
    return [_all_numbers([row[index] for row in rows]) for index in range(len(columns))]


def _all_numbers(values: Sequence[object]) -> bool:
    present = [value for value in values if value is not None]
    numbers = [value for value in present if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return bool(present) and len(numbers) == len(present)


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _width(text: str) -> int:
    """The columns that the text takes in a terminal: two for a wide letter, none for a combining mark."""
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )
