"""Figures as SVG text, drawn by hand. Knows nothing of what the numbers mean, and needs no library.

    grid = Grid("Gain in points", rows=("cars", "signs"), columns=("pets",), values=((1.5,), (-0.25,)))
    Path("gain.svg").write_text(heat_map(grid))
    as_text(grid)                                    # the same numbers for who cannot see the figure

A figure brings its own light background, so it reads alike on light and dark pages. Colours run from orange
over near-white to blue, which the colour-blind tell apart. The same grid gives the same bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from atlas_engine.views.tables import printable, table

__all__ = ["Grid", "as_text", "heat_map"]

WIDTH = 1280
MARGIN, TITLE_HEIGHT, KEY_HEIGHT = 24, 44, 44
CELL_HEIGHT, WIDEST_CELL, NARROWEST_CELL = 28, 96, 30
LETTER = 7.2  # width of one at 12 px
PAPER, INK, FAINT, MISSING = "#fcfcfc", "#1f2328", "#59636e", "#e6e8eb"
BLACK, WHITE, EVEN = "#000000", "#ffffff", 0.179  # the luminance on which both stand out alike
BELOW, MIDDLE, ABOVE = (179, 88, 6), (247, 247, 247), (33, 102, 172)  # orange, near-white, blue

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Grid:
    """Numbers with a name for every row and column, and how they are to be shown. None is not measured."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]  # (rows columns)
    number: str = "+.1f"
    about: str = ""
    limit: float | None = None
    """The distance from 0 at which a colour is full; the largest there is, if not given."""

    def __post_init__(self) -> None:
        if not self.rows or not self.columns:
            raise ValueError("a grid needs at least one row and one column.")
        if len(self.values) != len(self.rows) or any(len(row) != len(self.columns) for row in self.values):
            raise ValueError(f"the values are not {len(self.rows)} rows of {len(self.columns)} columns.")
        if not all(value is None or math.isfinite(value) for row in self.values for value in row):
            raise ValueError("a number is not finite. Pass None where there is nothing to show.")

    @property
    def reach(self) -> float:
        """The number that has the full colour."""
        known = [abs(value) for row in self.values for value in row if value is not None]
        return self.limit or max(known, default=0.0) or 1.0

    def shown(self, value: float | None) -> str:
        """A number as the figure writes it; one that rounds to zero has no minus."""
        if value is None:
            return "–"
        text = format(value, self.number)
        return text.replace("-", "−") if re.search("[1-9]", text) else format(0.0, self.number)


def as_text(grid: Grid) -> str:
    """The grid as a plain table: the figure's alternative for screen readers and terminals."""
    rows = [(name, *map(grid.shown, values)) for name, values in zip(grid.rows, grid.values, strict=True)]
    return table(rows, ("", *grid.columns))


def heat_map(grid: Grid) -> str:
    """The grid as an SVG: for each value a coloured cell with its number, and a key to the colours."""
    frame = _Frame.of(grid)
    places = [(row, column) for row in range(len(grid.rows)) for column in range(len(grid.columns))]
    cells = [_cell(frame, grid, row, column) for row, column in places]
    names = [_row_name(frame, row, name) for row, name in enumerate(grid.rows)]
    heads = [_column_name(frame, column, name) for column, name in enumerate(grid.columns)]
    parts = [_opening(frame, grid), *heads, *names, *cells, _key(frame, grid), "</svg>"]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True)
class _Frame:
    """Where things are, in pixels."""

    left: float  # of the cells
    top: float
    cell: float  # width of one
    font: float  # size of the numbers; 0 where they do not fit
    tilted: bool  # column names
    height: float

    @classmethod
    def of(cls, grid: Grid) -> _Frame:
        left = MARGIN + LETTER * max(len(name) for name in grid.rows) + 10
        longest = max(len(name) for name in grid.columns)
        cell = _cell_width(WIDTH - MARGIN - left, grid)
        tilted = longest * LETTER > cell - 6
        if tilted:  # the last name leans out to the right
            cell = _cell_width(WIDTH - left - max(MARGIN, LETTER * 0.75 * len(grid.columns[-1])), grid)
        letters = max(len(grid.shown(value)) for row in grid.values for value in row)
        font = min(12.0, (cell - 4) / (0.6 * letters))
        top = MARGIN + TITLE_HEIGHT + (longest * LETTER * 0.75 + 10 if tilted else 22)
        height = top + CELL_HEIGHT * len(grid.rows) + KEY_HEIGHT + MARGIN
        return cls(left, top, cell, font if font >= 8 else 0.0, tilted, height)


def _cell_width(room: float, grid: Grid) -> float:
    return max(NARROWEST_CELL, min(WIDEST_CELL, room / len(grid.columns)))


def _opening(frame: _Frame, grid: Grid) -> str:
    right = frame.left + frame.cell * len(grid.columns) + MARGIN
    width = max(WIDTH, round(right))
    title, told = _text(grid.title), f"{grid.about} {_told(grid)}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {frame.height:.0f}" '
            f'width="{width}" height="{frame.height:.0f}" role="img" aria-label="{title}" '
            f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
            f"<title>{title}</title>",
            f"<desc>{_text(told)}</desc>",
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
            f'<text x="{MARGIN}" y="{MARGIN + 14}" font-size="18" font-weight="600">{title}</text>',
            f'<text x="{MARGIN}" y="{MARGIN + 34}" fill="{FAINT}">{_text(grid.about)}</text>',
        ]
    )


def _told(grid: Grid) -> str:
    """The whole grid in words: `cars: pets +1.5, birds −0.2; signs: …`."""
    lines = [
        f"{name}: " + ", ".join(f"{c} {grid.shown(v)}" for c, v in zip(grid.columns, values, strict=True))
        for name, values in zip(grid.rows, grid.values, strict=True)
    ]
    return "; ".join(lines) + "."


def _row_name(frame: _Frame, row: int, name: str) -> str:
    y = frame.top + CELL_HEIGHT * (row + 0.5) + 4
    return f'<text x="{frame.left - 8:.1f}" y="{y:.1f}" text-anchor="end">{_text(name)}</text>'


def _column_name(frame: _Frame, column: int, name: str) -> str:
    x, y = frame.left + frame.cell * (column + 0.5), frame.top - 8
    how = f'transform="rotate(-45 {x:.1f} {y:.1f})"' if frame.tilted else 'text-anchor="middle"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {how}>{_text(name)}</text>'


def _cell(frame: _Frame, grid: Grid, row: int, column: int) -> str:
    value = grid.values[row][column]
    x, y = frame.left + frame.cell * column, frame.top + CELL_HEIGHT * row
    colour = None if value is None else _colour(value / grid.reach)
    fill = MISSING if colour is None else _hex(colour)
    told = f"{grid.rows[row]}, {grid.columns[column]}: {grid.shown(value)}"
    box = (
        f'<g><title>{_text(told)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{frame.cell - 1:.1f}" '
        f'height="{CELL_HEIGHT - 1}" fill="{fill}"/>'
    )
    if not frame.font:
        return f"{box}</g>"
    ink = BLACK if colour is None else _ink_on(colour)
    return (
        f'{box}<text x="{x + frame.cell / 2:.1f}" y="{y + CELL_HEIGHT / 2 + 4:.1f}" text-anchor="middle" '
        f'font-size="{frame.font:.1f}" fill="{ink}">{_text(grid.shown(value))}</text></g>'
    )


def _key(frame: _Frame, grid: Grid) -> str:
    """What the colours mean: five patches from the least to the most that there is."""
    known = [value for row in grid.values for value in row if value is not None]
    shares: Sequence[float] = (-1, -0.5, 0, 0.5, 1) if min(known, default=0) < 0 else (0, 0.25, 0.5, 0.75, 1)
    y = frame.top + CELL_HEIGHT * len(grid.rows) + 16
    patches = []
    for place, share in enumerate(shares):
        x, colour = frame.left + 64 * place, _colour(share)
        patches.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="63" height="18" fill="{_hex(colour)}"/>'
            f'<text x="{x + 31.5:.1f}" y="{y + 13:.1f}" text-anchor="middle" font-size="11" '
            f'fill="{_ink_on(colour)}">{_text(grid.shown(share * grid.reach))}</text>'
        )
    return "\n".join(patches)


def _colour(share: float) -> Colour:
    """−1 is orange, 0 near-white, 1 blue; what lies beyond has the full colour."""
    end, weight = (ABOVE if share > 0 else BELOW), min(abs(share), 1.0)
    red, green, blue = (round(m + (e - m) * weight) for m, e in zip(MIDDLE, end, strict=True))
    return red, green, blue


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _ink_on(colour: Colour) -> str:
    """Black or white, whichever stands out more: always by 4.5 to 1 at least, as WCAG counts it."""
    parts = (part / 255 for part in colour)
    red, green, blue = (p / 12.92 if p <= 0.04045 else math.pow((p + 0.055) / 1.055, 2.4) for p in parts)
    return BLACK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > EVEN else WHITE


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
