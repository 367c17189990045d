"""How a visitor ends what they began: a run under way, or the wait for one. Knows nothing of what it does.

Gradio's own `cancels` is not used: it tells the page that an event ended without any data, at which the page
now and then shows an error and closes the stream that its other events come by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from gradio.context import LocalContext
from gradio.server_messages import ProcessCompletedMessage

from app import alerts
from app.events import DEVICE, QUICK
from app.limits import LIMITS
from app.state import Runs

__all__ = ["departing", "leaving", "stopping"]


def stopping(runs: Runs) -> Callable[[gr.Request], Any]:
    """What a Stop button does: it ends the visitor's run, and hides."""

    def on_stop(request: gr.Request) -> Any:  # noqa: ANN401 - Gradio's update
        runs.stop(request.session_hash)
        return gr.update(visible=False)

    return on_stop


def departing(page: gr.Blocks, runs: Runs) -> None:
    """End the run of a visitor who closes the page; their result is kept no longer than if it were open.

    Gradio says so of a page whose connection broke for a moment, too: so what is finished stays for a while.
    Gradio would keep it for an hour, and the page promises less.
    """

    def on_depart(request: gr.Request) -> None:
        runs.stop(request.session_hash)
        session = page.state_holder.session_data.get(request.session_hash or "")
        if session is not None:
            session.STATE_TTL_WHEN_CLOSED = min(session.STATE_TTL_WHEN_CLOSED, LIMITS.keep_seconds)

    page.unload(on_depart)


def leaving(leave: gr.Button, runs: Runs, alert: gr.HTML) -> None:
    """Let a button give up the visitor's places in the queue; the sentence goes where refusals do.

    A run that has begun in the same moment is ended too.
    """

    async def on_leave(request: gr.Request) -> str:
        await _leave(str(request.session_hash))
        runs.stop(request.session_hash)
        return alerts.left_html()

    leave.click(on_leave, None, [alert], **QUICK)


async def _leave(session: str) -> None:
    """End the session's events that wait for the device as if they had changed nothing."""
    page = LocalContext.blocks.get()
    assert page is not None  # an event has one
    queue = page._queue
    lane = queue.event_queue_per_concurrency_id[DEVICE["concurrency_id"]]
    for event in [event for event in lane.queue if event.session_hash == session]:
        await queue.remove_from_queue(event._id)
        unchanged = {"data": [gr.skip() for _ in event.fn.outputs]}
        queue.send_message(event, ProcessCompletedMessage(output=unchanged, success=True))
