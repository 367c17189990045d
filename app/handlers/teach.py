"""Learn from a visitor's pictures: from a lesson to a finished adaptation. Knows nothing of Gradio.

The states tell what is going on: reading the pictures, looking at them, a preview, learning, and at last what
is kept. A run has a deadline; stopped or late, it keeps the best it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import atlas_engine as atlas
from app.handlers.choices import Choices, RollChoices
from app.handlers.lesson import FewShotRequest, LabelledImage, Reading, read_lesson
from app.limits import LIMITS
from app.state import SavedResult, StopSign

__all__ = ["RunProgress", "after", "compared", "follow", "teach"]

Run = atlas.Run[atlas.AdaptResult]


@dataclass(frozen=True)
class RunProgress:
    """How far it has come. `kept` is there at the end."""

    phase: str  # read, then a phase of the engine: look, preview or learn; at last done
    index: int = 0
    of: int = 1
    share: float = 0.0
    seconds_left: float | None = None
    losses: tuple[float, ...] = ()
    estimates: tuple[atlas.Estimate, ...] = ()
    left_out: tuple[str, ...] = ()
    samples: tuple[LabelledImage, ...] = ()
    preview: atlas.Comparison | None = None  # at the one state that brings it
    kept: SavedResult | None = None


def teach(
    engine: atlas.Atlas,
    lesson: FewShotRequest,
    choices: Choices | None = None,
    *,
    most_seconds: float = LIMITS.run_seconds,
    sign: StopSign | None = None,
) -> Iterator[RunProgress]:
    """States from the first picture to the finished adaptation.

    Raises an AtlasError when the lesson cannot be learned.
    """
    chosen, sign = choices or Choices(), sign or StopSign()
    reading = Reading(0, lesson.total)
    for reading in read_lesson(lesson):
        yield RunProgress("read", index=reading.seen, of=max(reading.total, 1))
        sign.heed()
    assert reading.support is not None  # the last state of a reading has it
    run = engine.few_shot(reading.support, method=chosen.method, config=chosen.config, seed=chosen.seed)
    taught = RunProgress("look", left_out=reading.left_out, samples=reading.samples)
    yield taught
    yield from follow(engine, run, taught, chosen, sign=sign, most_seconds=most_seconds)


def follow(
    engine: atlas.Atlas,
    run: Run,
    taught: RunProgress,
    choices: Choices | RollChoices,
    *,
    sign: StopSign,
    most_seconds: float,
) -> Iterator[RunProgress]:
    """States of a run, from where its pictures have been read to what is kept of it."""
    for step in sign.over(run):
        taught = after(taught, step)
        if step.preview is not None:
            taught = replace(taught, preview=compared(engine, step.preview, taught.samples))
        yield taught
        taught = replace(taught, preview=None)
        if step.seconds > most_seconds:
            run.cancel()
    result = run.result()
    yield replace(
        taught,
        phase="done",
        share=1.0,
        seconds_left=0.0,
        estimates=result.estimates,
        kept=_kept(engine, result, taught, choices),
    )


def compared(
    engine: atlas.Atlas, recipe: atlas.Recipe, samples: tuple[LabelledImage, ...]
) -> atlas.Comparison | None:
    """The samples by zero-shot and by the recipe; None when there are none."""
    return engine.compare([sample.picture for sample in samples], recipe) if samples else None


def after(taught: RunProgress, step: atlas.Step) -> RunProgress:
    """The state that a step of the engine leads to."""
    losses = taught.losses if math.isnan(step.loss) else (*taught.losses, step.loss)
    return replace(
        taught,
        phase=step.phase,
        index=step.index,
        of=step.of,
        share=min(step.share or taught.share, 1.0),
        seconds_left=step.seconds_left,
        losses=losses,
        estimates=step.estimates,
    )


def _kept(
    engine: atlas.Atlas, result: atlas.AdaptResult, taught: RunProgress, choices: Choices | RollChoices
) -> SavedResult:
    return SavedResult(
        result.recipe,
        result.verdict.sentence,
        choices=choices,
        helped=result.verdict.helped,
        estimates=result.estimates,
        losses=taught.losses,
        seconds=result.seconds,
        stopped=result.outcome.value != "finished",
        samples=taught.samples,
        comparison=compared(engine, result.recipe, taught.samples),
    )
