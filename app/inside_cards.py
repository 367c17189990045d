"""What a recipe is made of, as HTML: the map, its donors. Pure; everything from outside is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app import donor_text, inside_text, text
from app.handlers.inside import Donor
from app.markup import as_table, heading, note
from atlas_engine.views.heatmap import PHONE, Grid, heat_map

__all__ = ["bank_html", "code_html", "donors_html", "map_html", "share_html"]

DESK = 800  # pixels: the column that the map stands in
MOST = 10  # donors listed


def map_html(grid: Grid) -> str:
    """The map drawn for a desk and for a phone, and the same numbers as a table."""
    return (
        f"<div class='at-figure'><div class='at-desk'>{heat_map(grid, width=DESK)}</div>"
        f"<div class='at-phone'>{heat_map(grid, width=PHONE)}</div>"
        f"{as_table(grid)}</div>"
    )


def donors_html(donors: Sequence[Donor]) -> str:
    """The donors that move the model most: how much, and what they were trained on."""
    rows = "".join(_donor(one) for one in donors[:MOST])
    return heading(inside_text.DONORS_HEADING, level=3) + _table(
        inside_text.DONORS_HEADING, inside_text.DONORS_COLUMNS, rows
    )


def bank_html(donors: Sequence[Donor], alike: Grid) -> str:
    """Every donor with what it was trained on, and the map of how alike they are."""
    rows = "".join(f"<tr>{_name(one)}{_origin(one)}</tr>" for one in donors)
    lead = note(inside_text.bank_lead(len(donors)))
    return f"{lead}{_table(inside_text.BANK_HEADING, inside_text.BANK_COLUMNS, rows)}{map_html(alike)}"


def code_html(title: str, lines: str) -> str:
    """Lines to copy."""
    return (
        f"<div class='at-copied'>{heading(title, level=3)}{_copies('code', text.COPY, about=title)}"
        f"<pre class='at-code' tabindex='0' role='region' aria-label='{escape(title)}'>"
        f"<code>{escape(lines)}</code></pre></div>"
    )


def share_html(query: str) -> str:
    """The link that carries the settings."""
    link = f"<a href='{escape(query)}' target='_blank' rel='noopener'>{escape(text.SHARE_LINK)}</a>"
    copy = _copies("a", text.COPY_LINK, about=text.SHARE_HEADING)
    lead = heading(text.SHARE_HEADING, level=3) + note(text.SHARE_HELP)
    return f"{lead}<p class='at-link'>{link} {copy}</p>"


def _copies(source: str, label: str, *, about: str) -> str:
    """A button that copies the part of its parent that is a `source`."""
    told = f"{label}: {about}"
    return (
        f"<button type='button' class='at-copy' data-copies='{source}' aria-label='{escape(told)}'>"
        f"{escape(label)}</button>"
    )


def _donor(one: Donor) -> str:
    bar = f"<span class='at-bar' aria-hidden='true'><span style='width:{one.share:.1%}'></span></span>"
    share = f"<td class='at-share'>{escape(text.percent(one.share))}{bar}</td>"
    return f"<tr>{_name(one)}{share}{_origin(one)}</tr>"


def _name(one: Donor) -> str:
    return f"<th scope='row'>{escape(one.name)}</th>"


def _origin(one: Donor) -> str:
    return (
        f"<td>{escape(donor_text.donor_data(one.dataset, one.classes, one.images))}</td>"
        f"<td>{escape(inside_text.donor_accuracy(one.before, one.after))}</td>"
    )


def _table(title: str, columns: Sequence[str], rows: str) -> str:
    """A table that can be scrolled sideways, with the keyboard too."""
    head = "".join(f"<th scope='col'>{escape(column)}</th>" for column in columns)
    return (
        f"<div class='at-scroll' tabindex='0' role='region' aria-label='{escape(title)}'>"
        f"<table class='at-table'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
