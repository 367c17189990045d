"""Heat maps as SVG text, drawn by hand. Knows nothing of what the numbers mean, and needs no library.

    grid = Grid("Gain in points", rows=("cars", "signs"), columns=("pets",), values=((1.5,), (-0.25,)))
    Path("gain.svg").write_text(heat_map(grid))
    heat_map(grid, width=PHONE)                      # drawn anew for a narrow screen
    as_text(grid)                                    # the same numbers for who cannot see the figure

Colours run from orange over near-white to blue, which the colour-blind tell apart. The same grid gives the
same bytes.
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

__all__ = [
    "DESK",
    "LETTER",
    "PHONE",
    "Grid",
    "as_text",
    "escaped",
    "heading",
    "heat_map",
    "letters",
    "margin_of",
    "opening",
    "shortened",
]

DESK, PHONE = 1280, 360  # pixels across
WIDEST_CELL, FONT, LEAST_FONT = 96, 12.0, 8.0
DIGIT = 0.68  # width of one, as a share of its size; signs are wider than letters
MISSING = "#e6e8eb"
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


def heat_map(grid: Grid, *, width: int = DESK) -> str:
    """The grid as an SVG: for each value a coloured cell, its number where there is room, and a key.

    On a narrow figure the cells have colours only, and long names are cut; all is in the tooltips and in the
    description still.
    """
    frame = _Frame.of(grid, width)
    places = [(row, column) for row in range(len(grid.rows)) for column in range(len(grid.columns))]
    cells = [_cell(frame, grid, row, column) for row, column in places]
    names = [_row_name(frame, row, name) for row, name in enumerate(grid.rows)]
    heads = [_column_name(frame, column, name) for column, name in enumerate(grid.columns)]
    start = opening(grid.title, f"{grid.about} {_told(grid)}", width=frame.width, height=frame.height)
    return "\n".join([start, frame.heading, *heads, *names, *cells, _key(frame, grid), "</svg>"]) + "\n"


@dataclass(frozen=True)
class _Frame:
    """Where things are, in pixels."""

    heading: str
    left: float  # of the cells
    top: float
    cell: float  # width of one
    row: float  # height of one
    font: float  # size of the numbers; 0 where they do not fit
    turn: int  # of the column names, in degrees
    longest_name: int  # letters
    width: float
    height: float

    @classmethod
    def of(cls, grid: Grid, width: int) -> _Frame:
        margin, roomy = margin_of(width), width >= DESK
        most = max(14, min(32, width // 30))  # letters of a name
        titles, end = heading(grid.title, grid.about, width=width)
        left = margin + _broad(grid.rows, most) + 10
        cell = _cell_width(width - margin - left, grid, roomy=roomy)
        broad = _broad(grid.columns, most)
        turn = 0 if broad <= cell - 6 else 45 if cell >= 20 else 90
        if turn == 45:  # the last name leans out to the right
            lean = 0.75 * _broad(grid.columns[-1:], most)
            cell = _cell_width(width - left - max(margin, lean), grid, roomy=roomy)
        longest = max(len(grid.shown(value)) for row in grid.values for value in row)
        font = min(FONT, (cell - 4) / (DIGIT * longest))
        row = 28 if roomy else 20
        top = end + 14 + {0: FONT, 45: 0.75 * broad, 90: broad}[turn] + 8
        height = top + row * len(grid.rows) + 44 + margin
        right = left + cell * len(grid.columns) + margin
        shown = font if font >= LEAST_FONT else 0.0
        return cls(titles, left, top, cell, row, shown, turn, most, max(width, right), height)


def _broad(names: Sequence[str], most: int) -> float:
    """Pixels that the longest of the names takes, cut to at most so many letters."""
    return LETTER * FONT * max(letters(shortened(name, most)) for name in names)


def _cell_width(room: float, grid: Grid, *, roomy: bool) -> float:
    return max(30 if roomy else 10, min(WIDEST_CELL, room / len(grid.columns)))


def _told(grid: Grid) -> str:
    """The whole grid in words: `cars: pets +1.5, birds −0.2; signs: …`."""
    lines = [
        f"{name}: " + ", ".join(f"{c} {grid.shown(v)}" for c, v in zip(grid.columns, values, strict=True))
        for name, values in zip(grid.rows, grid.values, strict=True)
    ]
    return "; ".join(lines) + "."


def _row_name(frame: _Frame, row: int, name: str) -> str:
    y, text = frame.top + frame.row * (row + 0.5) + 4, escaped(shortened(name, frame.longest_name))
    return f'<text x="{frame.left - 8:.1f}" y="{y:.1f}" text-anchor="end">{text}</text>'


def _column_name(frame: _Frame, column: int, name: str) -> str:
    x, y = frame.left + frame.cell * (column + 0.5), frame.top - 8
    if frame.turn == 90:
        x += 4  # half a letter's height: the name stands on its side, in the middle of the column
    how = f'transform="rotate({-frame.turn} {x:.1f} {y:.1f})"' if frame.turn else 'text-anchor="middle"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {how}>{escaped(shortened(name, frame.longest_name))}</text>'


def _cell(frame: _Frame, grid: Grid, row: int, column: int) -> str:
    value = grid.values[row][column]
    x, y = frame.left + frame.cell * column, frame.top + frame.row * row
    colour = None if value is None else _colour(value / grid.reach)
    fill = MISSING if colour is None else _hex(colour)
    told = f"{grid.rows[row]}, {grid.columns[column]}: {grid.shown(value)}"
    box = (
        f'<g><title>{escaped(told)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{frame.cell - 1:.1f}" '
        f'height="{frame.row - 1:.0f}" fill="{fill}"/>'
    )
    if not frame.font:
        return f"{box}</g>"
    ink = BLACK if colour is None else _ink_on(colour)
    return (
        f'{box}<text x="{x + frame.cell / 2:.1f}" y="{y + frame.row / 2 + 4:.1f}" text-anchor="middle" '
        f'font-size="{frame.font:.1f}" fill="{ink}">{escaped(grid.shown(value))}</text></g>'
    )


def _key(frame: _Frame, grid: Grid) -> str:
    """What the colours mean: up to five patches from the least to the most that there is, no number twice."""
    known = [value for row in grid.values for value in row if value is not None]
    shares: Sequence[float] = (-1, -0.5, 0, 0.5, 1) if min(known, default=0) < 0 else (0, 0.25, 0.5, 0.75, 1)
    y = frame.top + frame.row * len(grid.rows) + 16
    start = frame.left if frame.width - frame.left >= 5 * 64 else margin_of(frame.width)
    numbers: dict[str, float] = {}
    for share in sorted(shares, key=lambda share: 2 * share % 1):  # quarters last: they give way
        numbers.setdefault(grid.shown(share * grid.reach), share)
    patches = []
    for place, share in enumerate(sorted(numbers.values())):
        x, colour = start + 64 * place, _colour(share)
        patches.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="63" height="18" fill="{_hex(colour)}"/>'
            f'<text x="{x + 31.5:.1f}" y="{y + 13:.1f}" text-anchor="middle" font-size="11" '
            f'fill="{_ink_on(colour)}">{escaped(grid.shown(share * grid.reach))}</text>'
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


# ---- The paper and letters of our figures: sizes, colours, an opening, wrapped texts. Knows nothing of
# numbers. A figure brings its own light background, so it reads alike on light and dark pages. It has the
# size it was drawn for, and shrinks with the page or picture frame that it is put in.
PAPER, INK, FAINT = "#fcfcfc", "#1f2328", "#59636e"
LETTER = 0.6  # width of one, as a share of its size
ROOMY = 700  # pixels from which on a figure has wide margins and large titles


def opening(title: str, told: str, *, width: float, height: float) -> str:
    """The start of an SVG with its name and its content in words, for who cannot see it."""
    name = escaped(title)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" style="max-width:100%;height:auto" role="img" '
            f'aria-label="{name}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
            f"<title>{name}</title>",
            f"<desc>{escaped(told)}</desc>",
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        ]
    )


def heading(title: str, about: str, *, width: float) -> tuple[str, float]:
    """The title and the sentence below it, broken into lines that fit, and where they end."""
    margin, lines = margin_of(width), []
    at = float(margin)
    size = 18 if width >= ROOMY else 15
    for text, letter, weight, colour in ((title, size, 600, INK), (about, 12, 400, FAINT)):
        most = max(8, int((width - 2 * margin) / (LETTER * letter)))
        for line in textwrap.wrap(printable(text), most):
            at += letter * 1.35
            lines.append(
                f'<text x="{margin}" y="{at - 0.3 * letter:.1f}" font-size="{letter}" '
                f'font-weight="{weight}" fill="{colour}">{escaped(line)}</text>'
            )
    return "\n".join(lines), at


def margin_of(width: float) -> int:
    """Pixels left free around a figure of that width."""
    return 24 if width >= ROOMY else 10


def letters(text: str) -> int:
    """How many letters wide a text is: two for each wide one."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in printable(text))


def shortened(text: str, most: int) -> str:
    """The text on one line and in at most so many letters, an ellipsis for what was left out."""
    line = printable(text)
    if letters(line) <= most:
        return line
    while letters(line) > most - 1:
        line = line[:-1]
    return f"{line.rstrip()}…"


def escaped(text: str) -> str:
    """Text that can stand in an SVG, whatever it holds."""
    return escape(printable(text), quote=True)
