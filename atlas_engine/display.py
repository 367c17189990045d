"""HTML tables and SVG figures for notebooks, from plain values.

    facts_html("Recipe", [("model", "ViT-B-32/openai"), ("classes", "otter, seal")])
    Figure(line_and_bars_svg(...)).save("result.svg")

Text is escaped. Colours follow the notebook's own text colour, so that both of its schemes are legible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from atlas_engine.errors import ConfigError
from atlas_engine.files import atomic_write

__all__ = ["Figure", "ShareBar", "facts_html", "figure_svg", "rows_html", "shorten"]

LISTED = 12  # names in one cell
WIDTH, HEIGHT, MARGIN = 360, 200, 40  # of one panel, in pixels
INK = "#4f6bd8"
TABLE = "border-collapse:collapse;text-align:left"
CELL = "padding:.15em .8em .15em 0;vertical-align:top"


@dataclass(frozen=True)
class Figure:
    """A figure as SVG: a notebook shows it, and `save` writes it."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: Path | str) -> None:
        """Write the figure to a .svg file, completely or not at all."""
        if Path(path).suffix.lower() != ".svg":
            raise ConfigError(f"'{path}' must end in .svg. Rename it.")
        with atomic_write(path) as part:
            part.write_text(self.svg, encoding="utf-8")

    def __repr__(self) -> str:
        return f"Figure({len(self.svg)} characters of SVG)"


@dataclass(frozen=True)
class ShareBar:
    """A share from 0 to 1 with the interval around it."""

    label: str
    value: float
    low: float
    high: float


def shorten(names: Sequence[str]) -> str:
    """The first names, and how many more there are.

    >>> shorten(["otter", "seal"])
    'otter, seal'
    """
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def facts_html(title: str, facts: Iterable[tuple[str, object]]) -> str:
    """A table of names and values under a title."""
    rows = "".join(f"<tr>{_header(name)}{_cell(value)}</tr>" for name, value in facts)
    return f"<div><strong>{escape(title)}</strong><table style='{TABLE}'>{rows}</table></div>"


def rows_html(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a header under a title."""
    head = "".join(map(_header, header))
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    table = f"<table style='{TABLE}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div><strong>{escape(title)}</strong>{table}</div>"


def _header(name: str) -> str:
    return f"<th style='{CELL};font-weight:600'>{escape(name)}</th>"


def _cell(value: object) -> str:
    return f"<td style='{CELL}'>{escape(str(value))}</td>"


def figure_svg(*, title: str, losses: Sequence[float], bars: Sequence[ShareBar]) -> str:
    """Losses by step on the left, shares with their intervals on the right, each where there is any."""
    panels = [_loss_panel(losses)] * bool(losses) + [_bar_panel(bars)] * bool(bars)
    width = WIDTH * max(1, len(panels))
    height = max([HEIGHT, *(MARGIN + 34 * len(bars) for _ in bars[:1])]) + 24
    inner = "".join(
        f"<g transform='translate({place * WIDTH} 24)'>{panel}</g>" for place, panel in enumerate(panels)
    )
    name, size = (
        escape(title, quote=True),
        f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'",
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size} role='img' aria-label='{name}' "
        "font-family='sans-serif' font-size='11' fill='currentColor'>"
        f"<title>{name}</title><text x='8' y='16' font-size='13'>{name}</text>{inner}</svg>"
    )


def _loss_panel(losses: Sequence[float]) -> str:
    """A line through the losses that are finite."""
    finite = [(step, loss) for step, loss in enumerate(losses) if math.isfinite(loss)]
    if not finite:
        return f"<text x='{MARGIN}' y='{MARGIN}'>no finite loss</text>"
    low, high = min(loss for _, loss in finite), max(loss for _, loss in finite)
    span, steps = (high - low) or 1.0, max(1, len(losses) - 1)
    across, down = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN
    points = " ".join(
        f"{MARGIN + across * step / steps:.1f},{MARGIN + down * (high - loss) / span:.1f}"
        for step, loss in finite
    )
    return (
        f"<polyline points='{points}' fill='none' stroke='{INK}' stroke-width='2'/>"
        f"<text x='4' y='{MARGIN + 4}'>{high:.3g}</text>"
        f"<text x='4' y='{HEIGHT - MARGIN + 4}'>{low:.3g}</text>"
        f"<text x='{MARGIN}' y='{HEIGHT - 12}'>loss by step, {len(losses)} steps</text>"
    )


def _bar_panel(bars: Sequence[ShareBar]) -> str:
    """A bar for each share, with its interval as a line and its number beside it."""
    left, full = 8, WIDTH - 70
    parts = []
    for place, bar in enumerate(bars):
        y = 20 + 34 * place
        low, high = (left + full * min(1.0, max(0.0, one)) for one in (bar.low, bar.high))
        parts.append(
            f"<text x='{left}' y='{y}'>{escape(bar.label)}</text>"
            f"<rect x='{left}' y='{y + 4}' width='{full * bar.value:.1f}' height='10' fill='{INK}' "
            "opacity='.55'/>"
            f"<line x1='{low:.1f}' x2='{high:.1f}' y1='{y + 9}' y2='{y + 9}' stroke='currentColor'/>"
            f"<text x='{left + full + 6}' y='{y + 13}'>{bar.value:.0%}</text>"
        )
    y = 30 + 34 * len(bars)
    return "".join(parts) + f"<text x='{left}' y='{y}'>held-out accuracy, 95 % interval</text>"
