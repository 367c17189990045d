"""Turns on what there is only one of: the device, and the process that reads images.

Learning takes minutes, a question a moment. A run gives its turn back after each step, and within a step
between two passes of the model; a question that waits goes first. So nobody who only asks waits longer than
for one pass, which is a part of a second, where a step of a large batch takes ten. While a run or a question
reads images it needs no device, and gives it back meanwhile.

    with DEVICE.hold(urgent=True): ...          # one holder at a time in this process
    with DEVICE.paused(): ...                   # inside of it: others may take their turn
    DEVICE.give_way()                           # inside of it: whoever waits goes first
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import inspect
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["DEVICE", "READING", "PriorityLock", "hold_each_step"]

PATIENCE_SECONDS = 1.0  # one that is not urgent waits so long for those that are, then goes first

Handler = Callable[..., Any]


class PriorityLock:
    """A lock for which those who are urgent wait less; within their kind, first come, first served."""

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)  # whoever held it is not in the child

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._held = False
        self._urgent: list[int] = []  # tickets that wait, the oldest first
        self._patient: list[tuple[int, float]] = []  # with the moment from which they go first
        self._tickets = itertools.count()
        self._mine = threading.local()

    @contextlib.contextmanager
    def hold(self, *, urgent: bool) -> Iterator[None]:
        """Wait for the turn and keep it while the block lasts. A thread that has it already just goes on."""
        if getattr(self._mine, "urgent", None) is not None:
            yield
            return
        self._acquire(urgent)
        try:
            yield
        finally:
            self._release()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Give this thread's turn back while the block lasts, if it has it."""
        urgent = getattr(self._mine, "urgent", None)
        if urgent is None:
            yield
            return
        self._release()
        try:
            yield
        finally:
            self._acquire(urgent)

    def give_way(self) -> None:
        """Let whoever waits have this thread's turn, and take it again after them."""
        if self._urgent or self._patient:
            with self.paused():
                pass

    def _acquire(self, urgent: bool) -> None:
        with self._changed:
            ticket = next(self._tickets)
            if urgent:
                heapq.heappush(self._urgent, ticket)
            else:
                heapq.heappush(self._patient, (ticket, time.monotonic() + PATIENCE_SECONDS))
            while self._held or self._next() != ticket:
                self._changed.wait(timeout=PATIENCE_SECONDS)
            if urgent:
                heapq.heappop(self._urgent)
            else:
                heapq.heappop(self._patient)
            self._held = True
        self._mine.urgent = urgent

    def _release(self) -> None:
        self._mine.urgent = None
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def _next(self) -> int:
        """The ticket whose turn it is."""
        if self._patient and (not self._urgent or self._patient[0][1] <= time.monotonic()):
            return self._patient[0][0]
        return self._urgent[0]


DEVICE = PriorityLock()
"""The device on which this process computes."""

READING = PriorityLock()
"""The helper process that decodes images."""


def hold_each_step(handler: Handler, lock: PriorityLock, *, urgent: bool) -> Handler:
    """The handler, holding `lock` for each of its steps; a handler without steps holds it throughout."""
    if inspect.isgeneratorfunction(handler):

        @functools.wraps(handler)
        def stream(*values: object) -> Iterator[Any]:
            steps = handler(*values)
            try:
                while True:
                    with lock.hold(urgent=urgent):
                        try:
                            step = next(steps)
                        except StopIteration:
                            return
                    yield step
            finally:
                steps.close()

        return stream

    @functools.wraps(handler)
    def call(*values: object) -> Any:  # noqa: ANN401 - whatever the handler gives
        with lock.hold(urgent=urgent):
            return handler(*values)

    return call
