"""Fair lanes: who goes next, how much one client may have waiting, and which jobs are dropped.

Gradio serves a queue in the order of arrival, takes any number of jobs from one client, and runs those that
nobody listens to any more. Here a client has one run under way and a few that wait; among those that wait,
the client goes first that has used the server least and waited longest; and a job whose client does not
listen is dropped. Questions have a lane beside the one for learning.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
from gradio import route_utils
from gradio.queueing import Event, Queue
from gradio.utils import run_coro_in_background

from app import text
from app.edge import CLIENT
from app.events import DEVICE, QUESTION, is_long_run
from app.limits import LIMITS, Limits
from app.metrics import Metrics
from app.priority_lock import DEVICE as DEVICE_TURN
from app.priority_lock import hold_each_step

__all__ = ["FairQueue", "Listeners", "use_fair_queue"]

HALF_LIFE_SECONDS = 600.0  # after which what a client has used counts half
CHECK_SECONDS = 2.0  # between two looks for jobs that nobody listens to
MAX_KNOWN = 5000  # clients, and sessions, that are remembered


class Listeners:
    """Which sessions and jobs somebody listens to, and when that was last so."""

    def __init__(self) -> None:
        self._now: dict[str, int] = {}
        self._last: OrderedDict[str, float] = OrderedDict()

    @contextlib.contextmanager
    def listening(self, name: str) -> Iterator[None]:
        """While the block lasts, somebody listens to the session or job of that name."""
        self._now[name] = self._now.get(name, 0) + 1
        try:
            yield
        finally:
            self._now[name] -= 1
            if not self._now[name]:
                del self._now[name]
            self._last[name] = time.monotonic()
            self._last.move_to_end(name)
            while len(self._last) > MAX_KNOWN:
                self._last.popitem(last=False)

    def seconds_since(self, name: str) -> float:
        """How long ago somebody listened: 0 while somebody does, infinite where nobody ever did."""
        if name in self._now:
            return 0.0
        return time.monotonic() - self._last[name] if name in self._last else float("inf")


class FairQueue(Queue):  # type: ignore[misc]  # Gradio says no types
    """Gradio's queue with fair lanes."""

    def __init__(
        self,
        page: gr.Blocks,
        *,
        listeners: Listeners,
        metrics: Metrics,
        note_session: Callable[[str, str], None],
        stop_run: Callable[[str], object],
        limits: Limits = LIMITS,
    ) -> None:
        super().__init__(
            live_updates=True,
            concurrency_count=page.max_threads,
            update_intervals=1,
            max_size=limits.waiting,
            blocks=page,
            default_concurrency_limit=4,
        )
        self._limits, self._listeners, self._metrics = limits, listeners, metrics
        self._note_session, self._stop_run = note_session, stop_run
        self.loop: asyncio.AbstractEventLoop | None = None
        self.on_run_end: Callable[[], None] = lambda: None
        self._used: OrderedDict[str, tuple[float, float]] = OrderedDict()  # by client: when, seconds used
        self._silent_since: dict[str, float] = {}  # sessions with messages that nobody listens to

    # ---- who may wait

    async def push(self, body: Any, request: Any, username: str | None) -> Any:  # noqa: ANN401, D102 - Gradio's
        client = str(request.scope.get(CLIENT, ""))
        refusal = self._refusal(body, client)
        if refusal:
            self._metrics.count_refusal("queue")
            return False, refusal, "queue_full"
        answer = await super().push(body=body, request=request, username=username)
        if answer[0] and body.session_hash:
            self._note_session(body.session_hash, client)
        return answer

    def _refusal(self, body: Any, client: str) -> str:  # noqa: ANN401 - Gradio's request
        """Why a job of this client may not wait; '' where it may."""
        if len(self) >= self._limits.waiting:
            return text.server.QUEUE_FULL
        try:
            wanted = route_utils.get_fn(self.blocks, None, body)
        except Exception:
            return ""  # no such event, which the queue itself refuses
        waiting = [event for event in self.waiting_events() if client_of(event) == client]
        if not _is_run(wanted):
            few = len([event for event in waiting if not _is_run(event.fn)]) < self._limits.waiting_questions
            return "" if few else text.server.CLIENT_ASKS
        running = [event for event in self.running_events() if client_of(event) == client]
        runs = [event for event in (*waiting, *running) if _is_run(event.fn)]
        return "" if len(runs) <= self._limits.waiting_runs else text.server.CLIENT_WAITS

    def waiting_events(self) -> list[Event]:
        """All jobs that wait, in any lane."""
        return [event for lane in self.event_queue_per_concurrency_id.values() for event in lane.queue]

    def running_events(self) -> list[Event]:
        """All jobs under way."""
        return [event for job in self.active_jobs if job for event in job]

    # ---- who goes next

    def get_events(self) -> Any:  # noqa: ANN401, D102 - Gradio's
        for lane in self.event_queue_per_concurrency_id.values():
            if len(lane.queue) > 1:
                first = min(lane.queue, key=self._place)
                lane.queue.remove(first)
                lane.queue.insert(0, first)
        return super().get_events()

    def _place(self, event: Event) -> float:
        """Seconds that its client has used less those that it has waited: the smallest goes first."""
        waited = time.monotonic() - float(event.enqueue_time)
        return self._used_seconds(client_of(event)) - waited

    def _used_seconds(self, client: str) -> float:
        when, seconds = self._used.get(client, (time.monotonic(), 0.0))
        return float(seconds * 0.5 ** ((time.monotonic() - when) / HALF_LIFE_SECONDS))

    async def process_events(self, events: list[Event], batch: bool, begin_time: float, fn: Any) -> None:  # noqa: ANN401, D102 - Gradio's
        client, start = client_of(events[0]), time.monotonic()
        try:
            await super().process_events(events, batch, begin_time, fn)
        finally:
            seconds = time.monotonic() - start
            self._used[client] = (time.monotonic(), self._used_seconds(client) + seconds)
            self._used.move_to_end(client)
            while len(self._used) > MAX_KNOWN:
                self._used.popitem(last=False)
            if _is_run(fn):
                self._metrics.count_run(seconds)
                self.on_run_end()

    # ---- what is dropped

    def start(self) -> None:  # noqa: D102 - Gradio's
        self.loop = asyncio.get_running_loop()
        super().start()
        run_coro_in_background(self._drop_unheard)

    async def _drop_unheard(self) -> None:
        while not self.stopped:
            await asyncio.sleep(CHECK_SECONDS)
            with contextlib.suppress(Exception):  # one job that cannot be dropped must not end this
                await self.drop_unheard_jobs()

    async def drop_unheard_jobs(self) -> int:
        """Drop jobs whose client has not listened for LIMITS.unheard_seconds; returns how many."""
        dropped = [
            event for event in (*self.waiting_events(), *self.running_events()) if self._is_unheard(event)
        ]
        for event in dropped:
            await self.clean_events(event_id=event._id)
            self.pending_event_ids_session.get(event.session_hash, set()).discard(event._id)
            self._stop_run(event.session_hash)
            self._metrics.count_refusal("unheard")
        self._forget_silent_sessions()
        return len(dropped)

    def _is_unheard(self, event: Event) -> bool:
        waited = time.monotonic() - float(event.enqueue_time)
        silent = min(self._listeners.seconds_since(name) for name in (event.session_hash, event._id))
        return min(waited, silent) > self._limits.unheard_seconds

    def _forget_silent_sessions(self) -> None:
        """Let go of messages for sessions that have no job left and that nobody listens to."""
        busy = {event.session_hash for event in (*self.waiting_events(), *self.running_events())}
        now, before = time.monotonic(), self._silent_since
        self._silent_since = {}
        for session, jobs in list(self.pending_event_ids_session.items()):
            names = (session, *jobs)
            silent = min(self._listeners.seconds_since(name) for name in names)
            if session in busy or silent == 0:
                continue
            # a job may be done before its client begins to listen: count from when it was first found so
            since = self._silent_since[session] = before.get(session, now)
            if min(silent, now - since) > self._limits.keep_seconds:
                self.pending_event_ids_session.pop(session, None)
                with contextlib.suppress(KeyError):
                    del self.pending_messages_per_session[session]

    async def end_waiting(self, sentence: str) -> None:
        """End every job that waits with this sentence: the server is about to stop."""
        for event in self.waiting_events():
            await self.remove_from_queue(event._id)
            self.send_message(event, _refused(sentence))


def use_fair_queue(page: gr.Blocks, *, share_device: bool = True, lanes: int = 1) -> list[str]:
    """Take what does not learn out of the lane for learning; returns the names of those handlers.

    Where both compute on one device of this process, they take turns on it. With several `lanes`, as many
    learn at a time, and as many times more ask.
    """
    moved = []
    for event in page.fns.values():
        if event.concurrency_id != DEVICE["concurrency_id"] or event.fn is None:
            continue
        learns = is_long_run(event.fn)
        event.concurrency_limit = DEVICE["concurrency_limit"] * lanes
        if not learns:
            event.concurrency_id, event.concurrency_limit = (
                QUESTION["concurrency_id"],
                QUESTION["concurrency_limit"] * lanes,
            )
            moved.append(event.fn.__name__)
        if share_device:
            event.fn = hold_each_step(event.fn, DEVICE_TURN, urgent=not learns)
    return moved


def client_of(event: Event) -> str:
    """The client that a job is for."""
    return str(event.request.scope.get(CLIENT, "")) if event.request is not None else ""


def _is_run(fn: Any) -> bool:  # noqa: ANN401 - Gradio's function
    return fn.fn is not None and is_long_run(fn.fn)


def _refused(sentence: str) -> Any:  # noqa: ANN401 - Gradio's message
    from gradio.server_messages import ProcessCompletedMessage

    return ProcessCompletedMessage(output={"error": sentence}, success=False, title="Stopped")
