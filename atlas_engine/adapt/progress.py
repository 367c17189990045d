"""The steps that a run yields: its phase, the share of its work that is done, and its time.

progress = Progress()
yield progress.phase("encode", 0, 4, share=0.1)              # a step outside the optimiser loop
loop = yield from progress.track(optimise(…), since=0.3)   # the loop, as the last 70 % of the work
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
    """The clock and the steps of one run, which begins when this is made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._history: list[Step] = []
        self.estimates: tuple[Estimate, ...] = ()  # the latest; every later step carries them

    @property
    def history(self) -> tuple[Step, ...]:
        """The optimiser's steps, without their tensors."""
        return tuple(self._history)

    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    def phase(self, name: str, index: int, of: int, *, share: float, preview: Recipe | None = None) -> Step:
        """A step outside the optimiser loop: number `index` of `of` in its phase, at `share` of all work."""
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
        self, steps: Generator[Step, None, LoopResult], *, since: float, until: float = 1.0
    ) -> Generator[Step, None, LoopResult]:
        """Yield the loop's steps with the share of all work done, `since` to `until`; return its result."""
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                loop: LoopResult = end.value
                return loop
            share = since + (until - since) * (step.index + 1) / step.of
            tracked = replace(step, seconds=self.seconds(), share=share, estimates=self.estimates)
            self._history.append(tracked.record())
            yield tracked
