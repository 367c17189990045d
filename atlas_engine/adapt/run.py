"""A run that you iterate or drain. Knows nothing of what happens inside a step.

    run = engine.few_shot(support)
    for step in run: ...          # work is done here, one step at a time
    result = run.result()         # … or here, all that is left of it

Nothing is computed before the first step is asked for. Iterating again tells the same steps again and goes on
where the run stands. ``cancel()`` may be called from any thread, at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from enum import Enum
from typing import Generic, TypeVar

from atlas_engine.result import Step

__all__ = ["Run", "RunState"]

Result = TypeVar("Result")


class RunState(str, Enum):
    """Where a run stands."""

    ready = "ready"
    running = "running"
    done = "done"
    failed = "failed"


class Run(Generic[Result]):
    """A lazy run: the steps as they happen, then the result."""

    def __init__(self, start: Callable[[threading.Event], Generator[Step, None, Result]]) -> None:
        self._start = start
        self._stop = threading.Event()
        self._steps: Generator[Step, None, Result] | None = None
        self._history: list[Step] = []
        self._result: tuple[Result] | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Step]:
        position = 0
        while (step := self._step(position)) is not None:
            yield step
            position += 1

    def __repr__(self) -> str:
        return f"Run({self.state.value}, {len(self._history)} steps taken)"

    @property
    def state(self) -> RunState:
        """ready, running, done or failed."""
        if self._error is not None:
            return RunState.failed
        if self._result is not None:
            return RunState.done
        return RunState.running if self._steps is not None else RunState.ready

    @property
    def history(self) -> tuple[Step, ...]:
        """The numbers of every step taken so far."""
        return tuple(self._history)

    def cancel(self) -> None:
        """Ask the run to end; it does within one micro-batch, and ``result()`` tells what it had by then."""
        self._stop.set()

    def result(self) -> Result:
        """What the run hands over, after the steps that are left. An error in a step is raised here again."""
        while self._step(len(self._history)) is not None:
            pass
        assert self._result is not None  # _step raises unless there is one
        return self._result[0]

    def _step(self, position: int) -> Step | None:
        """The step at that position: told again, or taken now; None after the last."""
        with self._lock:
            if position < len(self._history):
                return self._history[position]
            if self._error is not None:
                raise self._error
            if self._result is not None:
                return None
            return self._take()

    def _take(self) -> Step | None:
        try:
            self._steps = self._steps or self._start(self._stop)
            step = next(self._steps)
        except StopIteration as end:
            self._result = (end.value,)
            return None
        except BaseException as error:
            self._error = error
            raise
        self._history.append(step.record())
        return step
