"""Guards that end a run early: its deadline, a user who stops it, a loss that diverges or collapses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from atlas_engine.adapt.micro_batches import in_micro_batches
from atlas_engine.adapt.trainable import Forward
from atlas_engine.objectives.base import LogitsFn
from atlas_engine.result import Outcome

__all__ = ["DivergenceGuard", "GuardedForward", "RunGuard", "StopFlag", "StopRun"]

SMOOTHING = 0.9  # weight of the past in the smoothed loss


class StopFlag(Protocol):
    """A flag that another thread may set, such as `threading.Event`."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...


class StopRun(Exception):  # noqa: N818 - the end of a loop, not an error
    """Raised from within a step to end the loop."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome, self.reason = outcome, reason


class RunGuard:
    """The deadline and the stop flag of a run; `check` can be called anywhere within a step."""

    def __init__(
        self, *, deadline_seconds: float | None, stop: StopFlag | None, clock: Callable[[], float]
    ) -> None:
        self._limit, self._stop, self._clock = deadline_seconds, stop, clock
        self._began = clock()

    def seconds(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._began

    def check(self) -> None:
        """Raise `StopRun` if the run was cancelled or its deadline has passed."""
        if self._stop is not None and self._stop.is_set():
            raise StopRun(Outcome.cancelled, "the run was cancelled; what it had learned so far is kept.")
        if self._limit is not None and self.seconds() >= self._limit:
            raise StopRun(
                Outcome.deadline, f"the time of {self._limit:g} s was over; what it had learned is kept."
            )


class GuardedForward:
    """A `Forward` that checks the guard before each pass, and splits large batches into micro-batches."""

    def __init__(self, forward: Forward, guard: RunGuard, micro_batch: int | None) -> None:
        self._forward, self._guard, self._size = forward, guard, micro_batch

    def logits_fn(self, run: int) -> LogitsFn:
        """Images to logits, for one run."""
        logits_fn = self._forward.logits_fn(run)

        def guarded(images: Tensor) -> Tensor:
            self._guard.check()
            return logits_fn(images)

        return in_micro_batches(guarded, self._size)

    def gradients(self) -> Mapping[str, Tensor]:
        """Gradients by name, each (R …)."""
        return self._forward.gradients()


class DivergenceGuard:
    """The state of R runs side by side: which are alive, and why the others ended."""

    def __init__(self, runs: int, *, blow_up: float, floor: float | None = None) -> None:
        self.alive = [True] * runs
        self.collapsed = [False] * runs
        self._blow_up, self._floor = blow_up, floor
        self._first: Sequence[float] | None = None
        self._smooth: list[float | None] = [None] * runs
        self._floors = [0.0] * runs  # of each run, once its first loss is known
        self._causes: list[str] = []

    def examine(self, index: int, losses: Sequence[float], norms: Sequence[float]) -> None:
        """End the runs whose loss or gradient is not finite, or whose loss grew too much."""
        self._first = self._first or losses
        for run, (loss, norm, first) in enumerate(zip(losses, norms, self._first, strict=True)):
            cause = self._cause(loss, norm, first)
            if self.alive[run] and cause:
                self._end(run, f"{cause} at step {index}; the best coefficients before it are kept.")

    def check_collapse(self, index: int, losses: Sequence[float], norms: Sequence[float]) -> None:
        """End the runs whose smoothed loss fell below the floor: they are confident of everything.

        This is the reset rule of SAR (ICLR 2023), with a floor of at most half of a run's first loss: a model
        that was confident from the start has not collapsed. A step without any image to learn from has a loss
        and a gradient of 0, and is skipped.
        """
        for run, (loss, norm) in enumerate(zip(losses, norms, strict=True)):
            if self._floor is None or not self.alive[run] or norm == 0:
                continue
            before = self._smooth[run]
            if before is None:
                self._smooth[run], self._floors[run] = loss, min(self._floor, loss / 2)
                continue
            smooth = SMOOTHING * before + (1 - SMOOTHING) * loss
            self._smooth[run] = smooth
            if smooth < self._floors[run]:
                self.collapsed[run] = True
                self._end(
                    run,
                    f"the smoothed loss was {smooth:.3g}, below {self._floors[run]:.3g}, at step {index}: "
                    "a sign of collapse, so everything it learned was undone.",
                )

    def summary(self, *, lr: float) -> str:
        """A sentence on what went wrong and what to do; empty where nothing did."""
        if not self._causes:
            return ""
        what = "collapsed" if sum(self.collapsed) == len(self._causes) else "diverged"
        who = "" if len(self.alive) == 1 else f"{len(self._causes)} of {len(self.alive)} runs {what}: "
        return f"{who}{self._causes[0]} Try a smaller learning rate (now {lr:g})."

    def _end(self, run: int, cause: str) -> None:
        self.alive[run] = False
        self._causes.append(cause)

    def _cause(self, loss: float, norm: float, first: float) -> str:
        if not math.isfinite(loss):
            return f"the loss became {loss}"
        if not math.isfinite(norm):
            return "the gradient was not finite"
        if loss - first > self._blow_up * (1.0 + abs(first)):
            return f"the loss grew from {first:.3g} to {loss:.3g}"
        return ""
