"""Where the page meets the engine: the one lane on the device, and what a visitor is told of a failure.

Knows nothing of what the events do.
"""

from __future__ import annotations

import functools
import logging
import traceback
from collections.abc import Callable
from typing import Any

from gradio.context import LocalContext

import atlas_engine as atlas
from app import alerts, text

__all__ = ["DEVICE", "PRIVATE", "QUICK", "html_errors", "user_message", "visitor"]

DEVICE: dict[str, Any] = {"concurrency_id": "device", "concurrency_limit": 1}
"""Every event that computes shares this lane: one at a time on the device, whatever it is for."""

PRIVATE: dict[str, Any] = {"api_visibility": "private"}
"""Events of the page are of no use to a program, which has endpoints of its own."""

QUICK: dict[str, Any] = {"queue": False, "show_progress": "hidden", **PRIVATE}
"""Events that only move things about on the page."""

_log = logging.getLogger(__name__)


def visitor() -> str | None:
    """The session whose event this is; None outside of any."""
    return getattr(LocalContext.request.get(None), "session_hash", None)


def user_message(error: Exception) -> str:
    """What a visitor reads of a failure: the engine's own sentence, or that it is our fault.

    In the log stands where it happened, but not the message: it may hold a visitor's words or file names.
    """
    if isinstance(error, atlas.AtlasError):
        return str(error)
    frames = "".join(traceback.format_tb(error.__traceback__))
    _log.error("an event failed with %s\n%s", type(error).__name__, frames)
    return text.BROKEN


def html_errors(event: Callable[..., str]) -> Callable[..., str]:
    """An event that fills one area; where it fails, with the sentence for it."""

    @functools.wraps(event)
    def said(*values: object) -> str:
        try:
            return event(*values)
        except Exception as error:
            return alerts.alert_html(user_message(error))

    return said
