"""Answers and examples as HTML: pure functions, everything from outside escaped. Know nothing of events.

A picture's card is a figure beside an ordered list, so that a screen reader hears the ranking; each bar has
its number beside it, so that nothing depends on colour.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from urllib.parse import quote

from app import text
from app.examples import Example
from app.handlers.ask import Answer, Asked
from app.limits import LIMITS

__all__ = ["answers_html", "examples_html", "footnote_html", "header_html", "status_html"]


def header_html() -> str:
    """The title and the one sentence under it."""
    return f"<header class='at-header'><h1>{escape(text.TITLE)}</h1><p>{escape(text.LEAD)}</p></header>"


def footnote_html() -> str:
    """What happens to a visitor's pictures."""
    return f"<p class='at-note at-footnote'>{escape(text.FOOTNOTE)}</p>"


def answers_html(asked: Asked) -> str:
    """A card for each answered picture; nothing while there is none."""
    if not asked.answers:
        return ""
    cards = "".join(_card(answer) for answer in asked.answers)
    return f"{cards}<p class='at-note'>{escape(text.ANSWERS_NOTE)}</p>"


def status_html(line: str) -> str:
    """The heading of the answers, and beside it a line that a screen reader says aloud when it changes."""
    heading = escape(text.ANSWERS_HEADING)
    return f"<div class='at-status'><h2>{heading}</h2><p role='status'>{escape(line)}</p></div>"


def examples_html(examples: Iterable[Example]) -> str:
    """A row of buttons, one an example, each with its pictures; `data-example` holds its place."""
    buttons = "".join(_example_button(place, example) for place, example in enumerate(examples))
    heading = f"<h2>{escape(text.EXAMPLES_HEADING)}</h2>"
    return f"<section class='at-examples'>{heading}<div class='at-example-row'>{buttons}</div></section>"


def _card(answer: Answer) -> str:
    rows = "".join(_guess(label, prob) for label, prob in answer.guesses[: LIMITS.shown])
    alt = escape(text.picture_alt(answer.name))
    return (
        "<article class='at-card'>"
        f"<figure><img src='{_file_address(answer.path)}' alt='{alt}'>"
        f"<figcaption>{escape(answer.name)}</figcaption></figure>"
        f"<ol class='at-guesses'>{rows}</ol></article>"
    )


def _guess(label: str, prob: float) -> str:
    bar = f"<span class='at-bar' aria-hidden='true'><span style='width:{prob:.1%}'></span></span>"
    return (
        f"<li><span class='at-label'>{escape(label)}</span>"
        f"<span class='at-number'>{escape(text.percent(prob))}</span>{bar}</li>"
    )


def _example_button(place: int, example: Example) -> str:
    pictures = "".join(f"<img src='{_file_address(path)}' alt=''>" for path in example.paths)
    label = escape(text.example_label(example.title, example.classes))
    return (
        f"<button type='button' class='at-example' data-example='{place}' aria-label='{label}'>"
        f"<span class='at-thumbs' aria-hidden='true'>{pictures}</span>"
        f"<span>{escape(example.title)}</span></button>"
    )


def _file_address(path: str) -> str:
    """Where the page finds a file of the server; relative, so that it works behind a proxy's prefix."""
    return escape(f"gradio_api/file={quote(path)}")
