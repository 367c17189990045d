"""The visitors' sessions: whose they are, how many one client may have, and when they are let go.

Gradio keeps so many sessions and drops the one not used for longest: a stranger who opens a hundred empty
ones drops everybody's results. Here sessions without a result go first, then those of the client that has
most.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable

import gradio as gr
from gradio.state_holder import SessionState, StateHolder

from app.limits import LIMITS, Limits

__all__ = ["FairSessions", "SessionOwners"]

MAX_KNOWN = 20_000


class SessionOwners:
    """Which client has which session. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: OrderedDict[str, str] = OrderedDict()

    def note(self, session: str, client: str) -> None:
        """A session belongs to the client that first used it."""
        with self._lock:
            self._clients.setdefault(session, client)
            self._clients.move_to_end(session)
            while len(self._clients) > MAX_KNOWN:
                self._clients.popitem(last=False)

    def client_of(self, session: str) -> str:
        """The client of a session; '' where it is not known."""
        return self._clients.get(session, "")


class FairSessions(StateHolder):  # type: ignore[misc]  # Gradio says no types
    """Gradio's sessions with a fair choice of the one that makes room, and a sweep that cannot fail."""

    def __init__(self, page: gr.Blocks, owners: SessionOwners, *, limits: Limits = LIMITS) -> None:
        super().__init__()
        self._owners, self._limits = owners, limits
        self.set_blocks(page)
        self.capacity = limits.sessions

    def update(self, session_id: str) -> None:
        """Move a session to the end, and let others go where there are too many."""
        with self.lock:
            if session_id in self.session_data:
                self.session_data.move_to_end(session_id)
            while (victim := self._victim(keep=session_id)) is not None:
                self.session_data.pop(victim, None)
                self.time_last_used.pop(victim, None)

    def _victim(self, *, keep: str) -> str | None:
        """The session that has to go; None where none has to."""
        counts = Counter(self._owners.client_of(session) for session in self.session_data)
        mine = self._owners.client_of(keep)
        if counts[mine] > self._limits.visitor_sessions and mine:
            return self._first(lambda session: self._owners.client_of(session) == mine, keep=keep)
        if len(self.session_data) <= self.capacity:
            return None
        largest = max(counts.values())
        return (
            self._first(lambda session: not _holds_result(self.session_data[session]), keep=keep)
            or self._first(lambda session: counts[self._owners.client_of(session)] == largest, keep=keep)
            or self._first(lambda _: True, keep=keep)
        )

    def _first(self, chooses: Callable[[str], bool], *, keep: str) -> str | None:
        """The session not used for longest among those; of them one without a result, if there is one."""
        found = [session for session in self.session_data if session != keep and chooses(session)]
        empty = [session for session in found if not _holds_result(self.session_data[session])]
        return next(iter(empty or found), None)

    def sweep(self, now: datetime.datetime | None = None) -> int:
        """Let go of results that are too old, and of closed sessions without any; returns how many.

        Gradio does the same every second in a task that dies at the first change in between.
        """
        now = now or datetime.datetime.now()
        swept = 0
        for session, state in list(self.session_data.items()):
            swept += _expire(state, now, seconds=self._limits.keep_seconds)
            idle = (now - self.time_last_used.get(session, now)).total_seconds()
            if state.is_closed and idle > self._limits.keep_seconds and not _holds_result(state):
                with self.lock:
                    self.session_data.pop(session, None)
                    self.time_last_used.pop(session, None)
                swept += 1
        return swept


def _expire(state: SessionState, now: datetime.datetime, *, seconds: float) -> int:
    """Delete the values of a session that are older than they may be; returns how many."""
    expired = 0
    for key, (lives, since) in list(state._state_ttl.items()):
        if not lives or math.isinf(lives):  # the page's own, as the number of rows
            continue
        if (now - since).total_seconds() > min(lives, seconds) and key in state.state_data:
            with contextlib.suppress(KeyError):
                del state.state_data[key]
                del state._state_ttl[key]
                expired += 1
    return expired


def _holds_result(state: SessionState) -> bool:
    return any(not isinstance(value, int | None) for value in list(state.state_data.values()))
