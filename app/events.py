"""What all events of the page share: their lanes, what a visitor reads of a failure, and how a run ends.

An event takes values and gives back updates by component, `{component: value}`; a component that is not
among the updates stays as it is.
"""

from __future__ import annotations

import functools
import inspect
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import gradio as gr
from gradio.context import LocalContext
from gradio.server_messages import ProcessCompletedMessage

import atlas_engine as atlas
from app import text, views
from app.limits import LIMITS
from app.session import Runs

__all__ = [
    "DEVICE",
    "EXPORT",
    "FETCH",
    "PRIVATE",
    "QUESTION",
    "QUICK",
    "UNCHANGED",
    "UNPACK",
    "Updates",
    "Values",
    "api_errors",
    "current_session",
    "html_errors",
    "is_long_run",
    "leave_queue_with",
    "long_run",
    "stop_run_on_close",
    "stop_run_with",
    "user_message",
]

Values = dict[gr.components.Component, Any]
"""What an event is given: the value of each of its inputs (which are a set)."""

Updates = dict[gr.blocks.Block, Any]
"""What an event changes: new values, or properties by `gr.update`."""

UNCHANGED: Updates = gr.skip()
"""What an event gives back that changes nothing: Gradio does not take an empty dictionary."""

DEVICE: dict[str, Any] = {"concurrency_id": "device", "concurrency_limit": 1}
"""Events that compute: one at a time. What does not learn leaves for a lane of its own (`app.lane`)."""

QUESTION: dict[str, Any] = {"concurrency_id": "question", "concurrency_limit": 4}
"""Events that compute a moment only: they take turns on the device with the one that learns."""

UNPACK: dict[str, Any] = {"concurrency_id": "unpack", "concurrency_limit": 1}
"""Events that unpack a zip: one at a time, so that what is unpacked at once is bounded."""

EXPORT: dict[str, Any] = {"concurrency_id": "export", "concurrency_limit": 1}
"""Events that write a model in another format: one at a time, and nobody who asks or learns waits for it."""

FETCH: dict[str, Any] = {"concurrency_id": "fetch", "concurrency_limit": 1}
"""Events that fetch a model: one at a time, and nobody who only asks waits for a download."""

PRIVATE: dict[str, Any] = {"api_visibility": "private"}
"""Events of the page are of no use to a program, which has endpoints of its own (`app.api`)."""

QUICK: dict[str, Any] = {"queue": False, "show_progress": "hidden", **PRIVATE}
"""Events that only move things about on the page."""

Handler = TypeVar("Handler", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


def current_session() -> str | None:
    """The session whose event is running; None outside of any."""
    return getattr(LocalContext.request.get(None), "session_hash", None)


# ---- failures


def user_message(error: Exception) -> str:
    """What a visitor reads of a failure: the engine's own sentence, or that it is our fault.

    The log gets the place where it happened, but not the message: it may hold a visitor's words or file
    names.
    """
    if isinstance(error, atlas.AtlasError):
        return str(error)
    frames = "".join(traceback.format_tb(error.__traceback__))
    _log.error("an event failed with %s\n%s", type(error).__name__, frames)
    return text.page.BROKEN


def html_errors(event: Callable[..., str]) -> Callable[..., str]:
    """An event that fills one area with HTML; where it fails, with an alert."""

    @functools.wraps(event)
    def wrapped(*values: object) -> str:
        try:
            return event(*values)
        except Exception as error:
            return views.render_alert(user_message(error))

    return wrapped


def api_errors(endpoint: Handler) -> Handler:
    """An endpoint, or a generator of its states, whose failures reach the program as one sentence."""
    if inspect.isgeneratorfunction(endpoint):

        @functools.wraps(endpoint)
        def stream(*values: object) -> Iterator[Any]:
            try:
                yield from endpoint(*values)
            except Exception as error:
                raise gr.Error(user_message(error), print_exception=False) from None

        return stream  # type: ignore[return-value]

    @functools.wraps(endpoint)
    def call(*values: object) -> Any:  # noqa: ANN401 - whatever the endpoint gives
        try:
            return endpoint(*values)
        except Exception as error:
            raise gr.Error(user_message(error), print_exception=False) from None

    return call  # type: ignore[return-value]


# ---- long runs and how they end


def long_run(handler: Handler) -> Handler:
    """Mark a handler that learns: on ZeroGPU it may keep the device up to the deadline of a run."""
    handler.is_long_run = True  # type: ignore[attr-defined]
    return handler


def is_long_run(handler: Callable[..., Any]) -> bool:
    """Whether a handler was marked by `long_run`."""
    return getattr(handler, "is_long_run", False)


def stop_run_with(button: gr.Button, runs: Runs) -> None:
    """Let a Stop button end the visitor's run; until the run has ended, the button says that it stops."""

    def on_stop(request: gr.Request) -> Updates:
        runs.stop(request.session_hash)
        return {button: gr.update(value=text.page.STOPPING, interactive=False)}

    button.click(on_stop, None, [button], **QUICK)


def stop_run_on_close(page: gr.Blocks, runs: Runs) -> None:
    """End the run of a visitor who closes the page; their result is kept no longer than if it were open.

    Gradio reports the same of a page whose connection broke for a moment, so what is finished stays for a
    while. Gradio would keep it for an hour, and the page promises less.
    """

    def on_close(request: gr.Request) -> None:
        runs.stop(request.session_hash)
        session = page.state_holder.session_data.get(request.session_hash or "")
        if session is not None:
            session.STATE_TTL_WHEN_CLOSED = min(session.STATE_TTL_WHEN_CLOSED, LIMITS.keep_seconds)

    page.unload(on_close)


def leave_queue_with(button: gr.Button, runs: Runs, alert: gr.HTML) -> None:
    """Let a button give up the visitor's places in the queue, and say so in `alert`.

    A run that has begun in the same moment is ended too. Gradio's own `cancels` is not used: it tells the
    page that an event ended without any data, at which the page now and then shows an error and closes the
    stream that its other events come by.
    """

    async def on_leave(request: gr.Request) -> Updates:
        await _end_waiting_events(str(request.session_hash))
        runs.stop(request.session_hash)
        return {alert: views.render_left_queue()}

    button.click(on_leave, None, [alert], **QUICK)


async def _end_waiting_events(session: str) -> None:
    """End the session's events that wait for the device as if they had changed nothing."""
    page = LocalContext.blocks.get()
    assert page is not None  # an event has one
    queue = page._queue
    lanes = [
        lane
        for name, lane in queue.event_queue_per_concurrency_id.items()
        if name in (DEVICE["concurrency_id"], QUESTION["concurrency_id"])
    ]
    for event in [event for lane in lanes for event in lane.queue if event.session_hash == session]:
        await queue.remove_from_queue(event._id)
        unchanged = {"data": [gr.skip() for _ in event.fn.outputs]}
        queue.send_message(event, ProcessCompletedMessage(output=unchanged, success=True))
