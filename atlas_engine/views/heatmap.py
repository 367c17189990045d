"""Heat maps as SVG text, drawn without a library.

    grid = Grid("Gain in points", rows=("cars", "signs"), columns=("pets",), values=((1.5,), (-0.25,)))
    Path("gain.svg").write_text(heat_map(grid))
    heat_map(grid, width=PHONE)                      # laid out for a narrow screen
    as_text(grid)                                    # the same numbers as a plain table

Colours run from orange over near-white to blue, which colour-blind readers can tell apart. A figure has a
light background of its own, so that it looks the same on light and dark pages; it has the width it was drawn
for, and shrinks with the page. The same grid gives the same bytes.
"""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from atlas_engine.views.tables import printable, table

__all__ = ["DESK", "PHONE", "Grid", "as_text", "heat_map"]

DESK, PHONE = 1280, 360  # pixels across
ROOMY = 700  # pixels: from this width on a figure has wide margins and large titles
MAX_CELL = 96  # pixels across
FONT, MIN_FONT = 12.0, 8.0
LETTER, DIGIT = 0.6, 0.68  # width of one, as a share of its size; digits with their signs are wider

PAPER, INK, FAINT, MISSING = "#fcfcfc", "#1f2328", "#59636e", "#e6e8eb"
BLACK, WHITE, EVEN = "#000000", "#ffffff", 0.179  # the luminance on which both stand out equally
BELOW, MIDDLE, ABOVE = (179, 88, 6), (247, 247, 247), (33, 102, 172)  # orange, near-white, blue

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Grid:
    """Numbers with a name for every row and column, and how to show them. None is a missing number."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]  # (rows columns)
    number: str = "+.1f"
    about: str = ""
    limit: float | None = None
    """The distance from 0 that has the full colour; by default the largest in the grid."""

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

    def format_value(self, value: float | None) -> str:
        """A number as the figure shows it; one that rounds to zero has no minus."""
        if value is None:
            return "–"
        text = format(value, self.number)
        return text.replace("-", "−") if re.search("[1-9]", text) else format(0.0, self.number)


def as_text(grid: Grid) -> str:
    """The grid as a plain table: the figure's alternative for screen readers and terminals."""
    rows = [
        (name, *map(grid.format_value, values)) for name, values in zip(grid.rows, grid.values, strict=True)
    ]
    return table(rows, ("", *grid.columns))


def heat_map(grid: Grid, *, width: int = DESK) -> str:
    """The grid as an SVG: a coloured cell for each value, with its number if there is room, and a key.

    On a narrow figure the cells have colours only and long names are cut; the tooltips and the description
    say everything at any width.
    """
    layout = _Layout.of(grid, width)
    start = _start(grid.title, f"{grid.about} {_describe(grid)}", width=layout.width, height=layout.height)
    column_names = [_column_name(layout, column, name) for column, name in enumerate(grid.columns)]
    row_names = [_row_name(layout, row, name) for row, name in enumerate(grid.rows)]
    positions = [(row, column) for row in range(len(grid.rows)) for column in range(len(grid.columns))]
    cells = [_cell(layout, grid, row, column) for row, column in positions]
    parts = [start, layout.heading, *column_names, *row_names, *cells, _key(layout, grid), "</svg>"]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True)
class _Layout:
    """Positions and sizes in pixels."""

    heading: str
    left: float  # of the cells
    top: float
    cell: float  # width of one
    row: float  # height of one
    font: float  # size of the numbers; 0 if they do not fit
    turn: int  # of the column names, in degrees
    longest_name: int  # letters
    width: float
    height: float

    @classmethod
    def of(cls, grid: Grid, width: int) -> _Layout:
        margin, roomy = _margin(width), width >= DESK
        longest_name = max(14, min(32, width // 30))
        heading, heading_end = _heading(grid.title, grid.about, width=width)
        # cells fill the width that the row names leave
        left = margin + _names_width(grid.rows, longest_name) + 10
        cell = _cell_width(width - margin - left, grid, roomy=roomy)
        # column names are turned if they do not fit above their cells
        names_width = _names_width(grid.columns, longest_name)
        turn = 0 if names_width <= cell - 6 else 45 if cell >= 20 else 90
        if turn == 45:  # the last name leans out to the right
            lean = 0.75 * _names_width(grid.columns[-1:], longest_name)
            cell = _cell_width(width - left - max(margin, lean), grid, roomy=roomy)
        # numbers shrink with the cells, down to the smallest font
        longest_number = max(len(grid.format_value(value)) for row in grid.values for value in row)
        font = min(FONT, (cell - 4) / (DIGIT * longest_number))
        row = 28 if roomy else 20
        top = heading_end + 14 + {0: FONT, 45: 0.75 * names_width, 90: names_width}[turn] + 8
        return cls(
            heading=heading,
            left=left,
            top=top,
            cell=cell,
            row=row,
            font=font if font >= MIN_FONT else 0.0,
            turn=turn,
            longest_name=longest_name,
            width=max(width, left + cell * len(grid.columns) + margin),
            height=top + row * len(grid.rows) + 44 + margin,
        )


def _names_width(names: Sequence[str], longest: int) -> float:
    """Pixels that the longest of the names takes, each cut to at most `longest` letters."""
    return LETTER * FONT * max(_letters(_shorten(name, longest)) for name in names)


def _cell_width(room: float, grid: Grid, *, roomy: bool) -> float:
    return max(30 if roomy else 10, min(MAX_CELL, room / len(grid.columns)))


# ---- the parts of the figure


def _start(title: str, description: str, *, width: float, height: float) -> str:
    """The start of an SVG, with its title and a description for screen readers."""
    name = _escape(title)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" style="max-width:100%;height:auto" role="img" '
            f'aria-label="{name}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
            f"<title>{name}</title>",
            f"<desc>{_escape(description)}</desc>",
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        ]
    )


def _describe(grid: Grid) -> str:
    """The whole grid in words: `cars: pets +1.5, birds −0.2; signs: …`."""
    lines = [
        f"{name}: "
        + ", ".join(f"{c} {grid.format_value(v)}" for c, v in zip(grid.columns, values, strict=True))
        for name, values in zip(grid.rows, grid.values, strict=True)
    ]
    return "; ".join(lines) + "."


def _heading(title: str, about: str, *, width: float) -> tuple[str, float]:
    """The title and the sentence below it, in lines that fit the width, and the y at which they end."""
    margin, lines = _margin(width), []
    y = float(margin)
    title_size = 18 if width >= ROOMY else 15
    for text, size, weight, colour in ((title, title_size, 600, INK), (about, 12, 400, FAINT)):
        most = max(8, int((width - 2 * margin) / (LETTER * size)))
        for line in textwrap.wrap(printable(text), most):
            y += size * 1.35
            lines.append(
                f'<text x="{margin}" y="{y - 0.3 * size:.1f}" font-size="{size}" '
                f'font-weight="{weight}" fill="{colour}">{_escape(line)}</text>'
            )
    return "\n".join(lines), y


def _margin(width: float) -> int:
    return 24 if width >= ROOMY else 10


def _row_name(layout: _Layout, row: int, name: str) -> str:
    y, text = layout.top + layout.row * (row + 0.5) + 4, _escape(_shorten(name, layout.longest_name))
    return f'<text x="{layout.left - 8:.1f}" y="{y:.1f}" text-anchor="end">{text}</text>'


def _column_name(layout: _Layout, column: int, name: str) -> str:
    x, y = layout.left + layout.cell * (column + 0.5), layout.top - 8
    if layout.turn == 90:
        x += 4  # half a letter's height: the name stands on its side, in the middle of the column
    how = f'transform="rotate({-layout.turn} {x:.1f} {y:.1f})"' if layout.turn else 'text-anchor="middle"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {how}>{_escape(_shorten(name, layout.longest_name))}</text>'


def _cell(layout: _Layout, grid: Grid, row: int, column: int) -> str:
    value = grid.values[row][column]
    x, y = layout.left + layout.cell * column, layout.top + layout.row * row
    colour = None if value is None else _colour(value / grid.reach)
    fill = MISSING if colour is None else _hex(colour)
    tooltip = f"{grid.rows[row]}, {grid.columns[column]}: {grid.format_value(value)}"
    box = (
        f'<g><title>{_escape(tooltip)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{layout.cell - 1:.1f}" '
        f'height="{layout.row - 1:.0f}" fill="{fill}"/>'
    )
    if not layout.font:
        return f"{box}</g>"
    ink = BLACK if colour is None else _ink_on(colour)
    return (
        f'{box}<text x="{x + layout.cell / 2:.1f}" y="{y + layout.row / 2 + 4:.1f}" text-anchor="middle" '
        f'font-size="{layout.font:.1f}" fill="{ink}">{_escape(grid.format_value(value))}</text></g>'
    )


def _key(layout: _Layout, grid: Grid) -> str:
    """The key of the colours: up to five patches from the least to the most, each with another number."""
    known = [value for row in grid.values for value in row if value is not None]
    shares: Sequence[float] = (-1, -0.5, 0, 0.5, 1) if min(known, default=0) < 0 else (0, 0.25, 0.5, 0.75, 1)
    # of patches that would show the same number, quarters give way
    share_of: dict[str, float] = {}
    for share in sorted(shares, key=lambda share: 2 * share % 1):
        share_of.setdefault(grid.format_value(share * grid.reach), share)
    y = layout.top + layout.row * len(grid.rows) + 16
    start = layout.left if layout.width - layout.left >= 5 * 64 else _margin(layout.width)
    patches = []
    for place, share in enumerate(sorted(share_of.values())):
        x, colour = start + 64 * place, _colour(share)
        patches.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="63" height="18" fill="{_hex(colour)}"/>'
            f'<text x="{x + 31.5:.1f}" y="{y + 13:.1f}" text-anchor="middle" font-size="11" '
            f'fill="{_ink_on(colour)}">{_escape(grid.format_value(share * grid.reach))}</text>'
        )
    return "\n".join(patches)


# ---- colours and letters


def _colour(share: float) -> Colour:
    """−1 is orange, 0 near-white, 1 blue; beyond, the colour stays full."""
    end, weight = (ABOVE if share > 0 else BELOW), min(abs(share), 1.0)
    red, green, blue = (round(m + (e - m) * weight) for m, e in zip(MIDDLE, end, strict=True))
    return red, green, blue


def _hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def _ink_on(colour: Colour) -> str:
    """Black or white, whichever has more contrast: at least 4.5 to 1, as WCAG defines it."""
    parts = (part / 255 for part in colour)
    red, green, blue = (p / 12.92 if p <= 0.04045 else math.pow((p + 0.055) / 1.055, 2.4) for p in parts)
    return BLACK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > EVEN else WHITE


def _letters(text: str) -> int:
    """The width of a text in letters: a wide (East Asian) one counts as two."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in printable(text))


def _shorten(text: str, longest: int) -> str:
    """The text on one line of at most `longest` letters, with an ellipsis if it was cut."""
    line = printable(text)
    if _letters(line) <= longest:
        return line
    while _letters(line) > longest - 1:
        line = line[:-1]
    return f"{line.rstrip()}…"


def _escape(text: str) -> str:
    """The text on one line, safe to stand in an SVG."""
    return escape(printable(text), quote=True)
