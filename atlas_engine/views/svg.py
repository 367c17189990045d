"""The paper and letters of our figures: sizes, colours, an opening, wrapped texts. Knows nothing of numbers.

A figure brings its own light background, so it reads alike on light and dark pages. It has the size it was
drawn for, and shrinks with the page or picture frame that it is put in.
"""

from __future__ import annotations

import textwrap
import unicodedata
from html import escape

from atlas_engine.views.tables import printable

__all__ = ["LETTER", "escaped", "heading", "letters", "margin_of", "opening", "shortened"]

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
