"""The page as a server: its gates, its queue and sessions, its sweeper, and how it stops.

    server = serve(page, options, storage=storage, runs=runs, health=health)
    print(server.address)
    server.wait(stop_request, log) # until SIGTERM or SIGINT; then it drains, deletes files, and returns

Stopping: no new work is taken, runs end with the best they have, those who wait are told, the visitors' files
are deleted. It takes less than twenty seconds, also as the first process of a container, which the system's
own handling of signals passes by.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import gradio as gr
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

from app import text
from app.clients import TrustedProxies
from app.connections import ConnectionLimits, limit_connections, raise_file_limit
from app.edge import EdgeState, RequestGuard
from app.front import FrontPage, card_routes
from app.health import Health, health_routes
from app.hosts import AllowedHosts
from app.kept_answers import KeptAnswers
from app.lane import FairQueue, Listeners, use_fair_queue
from app.limits import LIMITS
from app.metrics import Metrics
from app.routes import allowed_routes
from app.runtime import keep_from_collector, limit_malloc_arenas, release_memory, resident_memory
from app.session import PageRuns
from app.storage import Storage
from app.uploads_route import upload_route
from app.visitors import FairSessions, SessionOwners

__all__ = ["LiveServer", "StopRequest", "serve"]

COMPRESSED_NBYTES = 1024  # from this size on an answer is compressed
SWEEP_SECONDS = 20.0  # between two sweeps; a run that ends brings the next one forward
GIVE_UP_SECONDS = 17.0  # after a signal the process ends, whatever still hangs
FETCH_SECONDS = 3.0  # after the last run: whoever started it fetches the recipe
ANSWER_SECONDS = 0.3  # without a run: the last answers leave

_log = logging.getLogger(__name__)


class StopRequest:
    """Catches SIGTERM and SIGINT: they end the process before it serves, and ask it to drain afterwards."""

    def __init__(self) -> None:
        self.name = ""
        self._asked = threading.Event()
        self._serving = False

    def install(self) -> StopRequest:
        """Take over both signals; call it in the main thread, first of all."""
        for which in (signal.SIGTERM, signal.SIGINT):
            signal.signal(which, self._on_signal)
        return self

    def wait(self) -> str:
        """Wait for a signal; returns its name."""
        self._serving = True
        while not self._asked.wait(0.5):  # in pieces: a wait without end would not let a signal through
            pass
        return self.name

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if not self._serving:
            raise SystemExit(0)
        self.name = signal.Signals(number).name
        self._asked.set()


@dataclass
class LiveServer:
    """A page that is being served."""

    page: gr.Blocks
    address: str
    storage: Storage
    edge: EdgeState
    queue: FairQueue
    sessions: FairSessions
    runs: PageRuns
    health: Health
    metrics: Metrics
    _stop: threading.Event = field(default_factory=threading.Event)
    _run_ended: threading.Event = field(default_factory=threading.Event)

    def wait(self, stop_request: StopRequest, log: Callable[[str], object]) -> None:
        """Serve until a signal comes, then drain."""
        keep_from_collector()
        log(text.server.stopping(stop_request.wait()))
        self.drain()
        log(text.server.STOPPED)

    def drain(self) -> None:
        """Refuse new work, let runs end with their best, tell those who wait, and delete visitors' files."""
        give_up = threading.Timer(GIVE_UP_SECONDS, self._give_up)
        give_up.daemon = True
        give_up.start()
        self.edge.draining = self.health.draining = True
        deadline = time.monotonic() + LIMITS.drain_seconds
        self._end_waiting()
        has_run = bool(self.queue.running_events())
        while self.queue.running_events() and time.monotonic() < deadline:
            self.runs.stop_all()  # again and again: one may have begun in this moment
            time.sleep(0.1)
        time.sleep(FETCH_SECONDS if has_run else ANSWER_SECONDS)
        self.close()
        give_up.cancel()

    def close(self) -> None:
        """Stop serving at once, and delete visitors' files."""
        self._stop.set()
        self._run_ended.set()
        self.health.close()
        with contextlib.suppress(Exception):  # what Gradio cannot close is closed by the end of the process
            self.page.close(verbose=False)
        self.storage.close()

    def start_sweeping(self) -> None:
        """Sweep in the background: files, results and memory that nobody needs any more."""
        threading.Thread(target=self._sweep_for_ever, name="atlas-sweeper", daemon=True).start()

    def note_run_end(self) -> None:
        """A run has ended: what it needed can be handed back."""
        self._run_ended.set()

    def _sweep_for_ever(self) -> None:
        while not self._stop.is_set():
            ended = self._run_ended.wait(SWEEP_SECONDS)
            self._run_ended.clear()
            self._sweep(memory=ended)

    def _sweep(self, *, memory: bool) -> None:
        sweeps: list[Callable[[], object]] = [self.storage.sweep, self.sessions.sweep]
        for sweep in (*sweeps, *([release_memory] if memory else [])):
            try:
                sweep()
            except Exception:  # whatever it is, the next sweep is made all the same
                _log.exception("a sweep failed")

    def _end_waiting(self) -> None:
        loop = self.queue.loop
        if loop is not None and loop.is_running():
            ending = asyncio.run_coroutine_threadsafe(self.queue.end_waiting(text.server.DRAINING), loop)
            with contextlib.suppress(Exception):
                ending.result(timeout=2)

    def _give_up(self) -> None:
        self.storage.close()
        sys.stderr.flush()
        os._exit(0)


def serve(
    page: gr.Blocks,
    options: dict[str, Any],
    *,
    storage: Storage,
    runs: PageRuns,
    health: Health,
    host: str | None = None,
    port: int | None = None,
    mcp: bool = False,
    share_device: bool = True,
    lanes: int = 1,
) -> LiveServer:
    """Serve the page in the background with these launch options, safely for strangers.

    An OSError where there is no free port. `share_device` lets questions and learning take turns on the one
    device of this process. `lanes` is how many learn at a time, which more than one process has to compute.
    """
    limit_malloc_arenas()
    use_fair_queue(page, share_device=share_device, lanes=lanes)
    metrics, owners, listeners = Metrics(), SessionOwners(), Listeners()
    own_routes = [upload_route(page, storage, metrics=metrics), *health_routes(health), *card_routes()]
    edge = EdgeState(
        allowed_routes(page, own=own_routes, mcp=mcp),
        hosts=AllowedHosts.from_environment(host),
        proxies=TrustedProxies.from_environment(),
        metrics=metrics,
        max_bytes=LIMITS.mcp_bytes if mcp else LIMITS.request_bytes,
        events=None if page.renderables else page.fns,  # some are made as a page is shown
        listening=listeners.listening,
        note_session=owners.note,
    )
    page.queue(max_size=LIMITS.waiting, default_concurrency_limit=4, api_open=False)
    page._queue = queue = FairQueue(
        page, listeners=listeners, metrics=metrics, note_session=owners.note, stop_run=runs.learning.stop
    )
    connections = ConnectionLimits(edge.proxies, metrics, most=raise_file_limit())
    front = [
        Middleware(KeptAnswers),
        Middleware(GZipMiddleware, minimum_size=COMPRESSED_NBYTES),
        Middleware(FrontPage),
    ]
    guard = Middleware(RequestGuard, state=edge)
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        prevent_thread_lock=True,
        mcp_server=mcp,
        app_kwargs={"middleware": [guard, *front], "routes": own_routes},
        **options,
    )
    limit_connections(page.server, connections)
    sessions = FairSessions(page, owners)
    page.server_app.state_holder = sessions
    server = LiveServer(page, str(address), storage, edge, queue, sessions, runs, health, metrics)
    queue.on_run_end = server.note_run_end
    _watch_gauges(server, connections)
    server.start_sweeping()
    health.watch()
    return server


def _watch_gauges(server: LiveServer, connections: ConnectionLimits) -> None:
    watch, queue, storage = server.metrics.watch, server.queue, server.storage
    watch("atlas_ready", "1 where /readyz says so.", lambda: float(not server.health.problems))
    watch("atlas_waiting_jobs", "Jobs that wait.", lambda: len(queue.waiting_events()))
    watch("atlas_running_jobs", "Jobs under way.", lambda: len(queue.running_events()))
    watch("atlas_sessions", "Sessions in memory.", lambda: len(server.sessions.session_data))
    watch("atlas_connections", "Open connections.", lambda: len(connections.open))
    watch("atlas_storage_bytes", "Bytes of visitors' files.", storage.used_nbytes)
    watch("atlas_disk_free_bytes", "Bytes that the disk has left.", storage.free_nbytes)
    watch("process_resident_memory_bytes", "Bytes of memory held.", lambda: resident_memory() or 0)
