"""What a run tells while it goes: its clock, its steps, how much is done. Knows nothing of what is learned.

story = Story()
yield story.mark("look", 0, 4, share=0.1)                # a step that learned nothing
ending = yield from story.follow(learn(…), since=0.3)     # the loop's steps, told as the last 70 %
story.history, story.seconds()
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
    """One run's, from the moment that it is made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._learned: list[Step] = []
        self.estimates: tuple[Estimate, ...] = ()  # known by now; told with every step

    @property
    def history(self) -> tuple[Step, ...]:
        """The steps that learned something, as records."""
        return tuple(self._learned)

    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self._began

    def mark(self, phase: str, index: int, of: int, *, share: float, preview: Recipe | None = None) -> Step:
        """A step that learned nothing, but tells how far the run is."""
        return Step(
            index=index,
            of=of,
            loss=float("nan"),
            losses=(),
            lr=0.0,
            grad_norm=0.0,
            scores=None,
            seconds=self.seconds(),
            phase=phase,
            share=share,
            estimates=self.estimates,
            preview=preview,
        )

    def follow(
        self, steps: Generator[Step, None, LoopResult], *, since: float
    ) -> Generator[Step, None, LoopResult]:
        """The loop's steps as they come, which take the run from `since` to the end of its work."""
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                ending: LoopResult = end.value
                return ending
            share = since + (1 - since) * (step.index + 1) / step.of
            told = replace(step, seconds=self.seconds(), share=share, estimates=self.estimates)
            self._learned.append(told.record())
            yield told
