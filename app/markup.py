"""Small pieces of HTML that several cards share, everything from outside escaped. Knows nothing of events."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from urllib.parse import quote

from app import text
from atlas_engine.views.heatmap import Grid, as_text

__all__ = ["as_table", "example_button", "example_row", "file_address", "guess_list", "heading", "note"]

Guesses = Iterable[tuple[str, float]]


def file_address(path: str) -> str:
    """Where the page finds a file of the server; relative, so that it works behind a proxy's prefix."""
    return escape(f"gradio_api/file={quote(path)}")


def guess_list(guesses: Guesses) -> str:
    """Labels as an ordered list, each with its number and a bar."""
    return f"<ol class='at-guesses'>{''.join(_guess(label, prob) for label, prob in guesses)}</ol>"


def as_table(grid: Grid) -> str:
    """The numbers of a figure, for who cannot see it or wants them exactly; closed at first."""
    summary = f"<summary>{escape(text.MAP_AS_TABLE)}</summary>"
    return f"<details>{summary}<pre tabindex='0'>{escape(as_text(grid))}</pre></details>"


def heading(words: str, *, level: int = 2) -> str:
    """A heading of ours."""
    return f"<h{level} class='at-heading'>{escape(words)}</h{level}>"


def note(words: str) -> str:
    """A sentence in small letters."""
    return f"<p class='at-note'>{escape(words)}</p>"


def example_row(title: str, buttons: Iterable[str]) -> str:
    """Buttons under a heading."""
    row = f"<div class='at-example-row'>{''.join(buttons)}</div>"
    return f"<section class='at-examples'><h2>{escape(title)}</h2>{row}</section>"


def example_button(place: int, title: str, paths: Iterable[str], label: str) -> str:
    """A button with pictures; `data-example` holds its place."""
    pictures = "".join(f"<img src='{file_address(path)}' alt=''>" for path in paths)
    return (
        f"<button type='button' class='at-example' data-example='{place}' aria-label='{escape(label)}'>"
        f"<span class='at-thumbs' aria-hidden='true'>{pictures}</span>"
        f"<span>{escape(title)}</span></button>"
    )


def _guess(label: str, prob: float) -> str:
    bar = f"<span class='at-bar' aria-hidden='true'><span style='width:{prob:.1%}'></span></span>"
    return (
        f"<li><span class='at-label'>{escape(label)}</span>"
        f"<span class='at-number'>{escape(text.percent(prob))}</span>{bar}</li>"
    )
