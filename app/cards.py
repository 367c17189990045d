"""Answers and examples as HTML: pure functions, everything from outside escaped. Know nothing of events.

A picture's card is a figure beside an ordered list, so that a screen reader hears the ranking; each bar has
its number beside it, so that nothing depends on colour.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from app import roll_text, text
from app.examples import Example, LessonExample, RollExample
from app.handlers.ask import Answer, Asked
from app.limits import LIMITS
from app.markup import example_button, example_row, file_address, guess_list

__all__ = [
    "answers_html",
    "examples_html",
    "footnote_html",
    "header_html",
    "jump_html",
    "lessons_html",
    "rolls_html",
    "status_html",
]


def header_html() -> str:
    """The title and the one sentence under it."""
    return f"<header class='at-header'><h1>{escape(text.TITLE)}</h1><p>{escape(text.LEAD)}</p></header>"


def jump_html(place: str) -> str:
    """A link to another part of the page, for a phone, where it is far below."""
    return f"<p class='at-link'><a href='#{place}'>{escape(text.JUMP)}</a></p>"


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
    buttons = (
        example_button(place, one.title, one.paths, text.example_label(one.title, one.classes))
        for place, one in enumerate(examples)
    )
    return example_row(text.EXAMPLES_HEADING, buttons)


def lessons_html(lessons: Iterable[LessonExample]) -> str:
    """The same for lessons, each with the first picture of its first classes."""
    buttons = []
    for place, one in enumerate(lessons):
        rows = one.lesson.rows
        label = text.lesson_label(one.title, tuple(row.name for row in rows))
        buttons.append(example_button(place, one.title, [row.paths[0] for row in rows[:4]], label))
    return example_row(text.LESSONS_HEADING, buttons)


def rolls_html(rolls: Iterable[RollExample]) -> str:
    """Photos without labels, to be filled in."""
    buttons = [
        example_button(place, one.title, list(one.some), roll_text.example_label(one.title, one.classes))
        for place, one in enumerate(rolls)
    ]
    return example_row(roll_text.EXAMPLES_HEADING, buttons)


def _card(answer: Answer) -> str:
    alt = escape(text.picture_alt(answer.name))
    return (
        "<article class='at-card'>"
        f"<figure><img src='{file_address(answer.path)}' alt='{alt}'>"
        f"<figcaption>{escape(answer.name)}</figcaption></figure>"
        f"{guess_list(answer.guesses[: LIMITS.shown])}</article>"
    )
