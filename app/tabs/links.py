"""What whoever opens a link is told. Knows nothing of Gradio, nor of what else the link holds."""

from __future__ import annotations

from collections.abc import Iterable

from app import alerts, model_text
from app.handlers.choices import model_from_query
from app.model import chosen_as

__all__ = ["link_note"]


def link_note(pairs: Iterable[tuple[str, str]], now: str) -> str:
    """A word where the link was made with another model than the one that answers `now`; else nothing."""
    model, now = model_from_query(pairs), chosen_as(now)
    return alerts.NOTHING if model in ("", now) else alerts.note_html(model_text.made_with(model, now))
