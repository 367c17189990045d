"""What went wrong, as HTML that a screen reader says aloud. Knows nothing of Gradio.

An alert stands near the button, for what the visitor can mend; the banner stands at the top, for what holds
for every visitor.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from app import text

__all__ = ["NOTHING", "alert_html", "banner_html", "left_html", "left_out_html", "note_html", "sentence"]

NOTHING = ""


def alert_html(message: str) -> str:
    """One sentence that needs the visitor's attention."""
    return f"<div class='at-alert at-refusal' role='alert'><p>{escape(sentence(message))}</p></div>"


def note_html(message: str) -> str:
    """One sentence that is good to know, at the same place."""
    return f"<div class='at-alert' role='status'><p>{escape(sentence(message))}</p></div>"


def left_html() -> str:
    """That the visitor gave up waiting; it hides while they wait again."""
    return f"<div class='at-alert at-left' role='alert'><p>{escape(text.LEFT)}</p></div>"


def left_out_html(sentences: Sequence[str]) -> str:
    """Which pictures were left out, and why; nothing when there are none."""
    if not sentences:
        return NOTHING
    items = "".join(f"<li>{escape(line)}</li>" for line in sentences)
    return f"<div class='at-alert' role='alert'><p>{escape(text.LEFT_OUT_HEADING)}</p><ul>{items}</ul></div>"


def banner_html(reason: str) -> str:
    """Why another model than the chosen one is answering."""
    heading = escape(text.BANNER_HEADING)
    return f"<div class='at-banner' role='status'><strong>{heading}</strong> {escape(sentence(reason))}</div>"


def sentence(message: str) -> str:
    """The engine's message with a capital letter at the front.

    >>> sentence("model 'x' is not known.")
    "Model 'x' is not known."
    """
    return message[:1].upper() + message[1:]
