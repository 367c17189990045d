"""The steps that a run yields: what it is doing, how far it is, how long it took.

progress = Progress()
yield progress.phase("look", 0, 4, share=0.1)              # a step that learned nothing
loop = yield from progress.track(optimise(…), since=0.3)   # the loop's steps, as the last 70 % of the work
progress.history, progress.seconds()
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace

from atlas_engine.adapt.optimise import LoopResult
from atlas_engine.recipe import Recipe
from atlas_engine.result import Estimate, Step

__all__ = ["Progress"]


class Progress:
    """The clock and the steps of one run, from the moment that it is made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._history: list[Step] = []
        self.estimates: tuple[Estimate, ...] = ()  # known by now; carried by each step from then on

    @property
    def history(self) -> tuple[Step, ...]:
        """The optimiser's steps, without their tensors."""
        return tuple(self._history)

    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def phase(self, name: str, index: int, of: int, *, share: float, preview: Recipe | None = None) -> Step:
        """A step that learned nothing: part `index` of `of` of a phase, with `share` of all work done."""
        return Step(
            index=index,
            of=of,
            loss=float("nan"),
            losses=(),
            lr=0.0,
            grad_norm=0.0,
            scores=None,
            seconds=self.seconds(),
            phase=name,
            share=share,
            estimates=self.estimates,
            preview=preview,
        )

    def track(
        self, steps: Generator[Step, None, LoopResult], *, since: float
    ) -> Generator[Step, None, LoopResult]:
        """The loop's steps as they come, with the share of all work done: from `since` to 1."""
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                loop: LoopResult = end.value
                return loop
            share = since + (1 - since) * (step.index + 1) / step.of
            tracked = replace(step, seconds=self.seconds(), share=share, estimates=self.estimates)
            self._history.append(tracked.record())
            yield tracked
