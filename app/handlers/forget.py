"""Forget some classes and keep others: from pictures of both to a slider's numbers. Knows nothing of Gradio.

The states are those of a lesson (`handlers.teach`), with a search before the learning, and a measurement at
each strength after it. A run has a deadline; stopped or late, it keeps the best it has.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import atlas_engine as atlas
from app import forget_text, text
from app.handlers.lesson import ClassRow, FewShotRequest, LabelledImage, Reading, SampleFile, read_lesson
from app.handlers.pictures import as_seen
from app.handlers.takeaway import SHIPPED, Origin, bank_lines, model_flags
from app.handlers.teach import RunProgress, after
from app.limits import LIMITS
from app.state import StopSign

__all__ = [
    "STRENGTHS",
    "ForgetProgress",
    "ForgetRequest",
    "ForgetResult",
    "forget",
    "look",
    "pictures_of",
    "rows_of",
    "shell_line",
]

STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""What the slider can be set to: 0 is zero-shot, 1 what was learned."""

RUN_SHARE = 0.85  # of the work, about; the rest is the measurement
LOOKED_AT = 6  # pictures of each side that are shown at a strength


@dataclass(frozen=True)
class ForgetRequest:
    """What to forget, what to keep, and how much of the latter has to stay."""

    target: FewShotRequest
    control: FewShotRequest
    keep: float = atlas.NegateConfig().keep
    seed: int = 0

    @classmethod
    def of(
        cls, target: Sequence[ClassRow], control: Sequence[ClassRow], *, keep: float, seed: int
    ) -> ForgetRequest:
        """Checked side by side: a refusal says which one it is about."""
        return cls(
            _side(forget_text.TARGET_HEADING, target),
            _side(forget_text.CONTROL_HEADING, control),
            keep=keep,
            seed=seed,
        )


@dataclass(frozen=True, eq=False)
class ForgetResult:
    """A recipe that forgets, its story, what is named right at each strength, and the pictures of both sides.

    The pictures are as small as the model sees them, since they stay in memory with a visitor's session.
    """

    recipe: atlas.Recipe
    sentence: str
    helped: bool | None
    curve: tuple[atlas.ForgettingPoint, ...]
    target: tuple[LabelledImage, ...]
    control: tuple[LabelledImage, ...]
    keep: float
    seconds: float = 0.0
    stopped: bool = False
    example: bool = False  # whether it ships with the page

    def __deepcopy__(self, memo: dict[int, Any]) -> ForgetResult:
        return self  # nothing in it is ever written to

    def at(self, strength: float) -> atlas.ForgettingPoint:
        """What was measured at the strength nearest to this one."""
        return min(self.curve, key=lambda one: abs(one.scale - strength))


@dataclass(frozen=True)
class ForgetProgress:
    """How far it has come. `kept` is there at the end."""

    taught: RunProgress
    kept: ForgetResult | None = None


def forget(
    engine: atlas.Atlas,
    wish: ForgetRequest,
    *,
    most_seconds: float = LIMITS.run_seconds,
    sign: StopSign | None = None,
) -> Iterator[ForgetProgress]:
    """States from the first picture to the measured slider.

    Raises an AtlasError when nothing can be learned from these pictures.
    """
    sign = sign or StopSign()
    target, control = yield from _read(engine, wish, sign)
    run = engine.negate(target.support, control.support, keep=wish.keep, seed=wish.seed)
    taught = RunProgress("look", left_out=(*target.left_out, *control.left_out))
    yield ForgetProgress(taught)
    for step in sign.over(run):
        taught = after(taught, step)
        yield ForgetProgress(replace(taught, share=RUN_SHARE * taught.share, estimates=()))
        if step.seconds > most_seconds:
            run.cancel()
    result = run.result()
    stopped = result.outcome.value != "finished"
    strengths = (STRENGTHS[0], STRENGTHS[-1]) if stopped else STRENGTHS  # who stops wants to be done
    curve: list[atlas.ForgettingPoint] = []
    for place, strength in enumerate(strengths):
        share = RUN_SHARE + (1 - RUN_SHARE) * place / len(strengths)
        measuring = replace(taught, phase="measure", index=place, of=len(strengths), share=share)
        yield ForgetProgress(replace(measuring, seconds_left=None, estimates=()))
        curve += atlas.forgetting_curve(
            engine, result.recipe, target.support, control.support, scales=(strength,)
        )
    kept = ForgetResult(
        result.recipe,
        result.verdict.sentence,
        result.verdict.helped,
        tuple(curve),
        target.shown,
        control.shown,
        keep=wish.keep,
        seconds=result.seconds,
        stopped=stopped,
    )
    yield ForgetProgress(replace(taught, phase="done", share=1.0, seconds_left=0.0), kept)


def look(
    engine: atlas.Atlas, kept: ForgetResult, strength: float
) -> list[tuple[atlas.Comparison, tuple[LabelledImage, ...]]]:
    """Some pictures of each side, as the model was and at this strength, among the classes of their side."""
    weaker = atlas.scale_recipe(kept.recipe, strength)
    seen = []
    for side in (kept.target, kept.control):
        some = _spread(side, LOOKED_AT)
        own = tuple(dict.fromkeys(one.truth for one in side if one.truth is not None))
        told = engine.compare([one.picture for one in some], weaker)
        seen.append((atlas.Comparison(_among(told.zero_shot, own), _among(told.adapted, own)), some))
    return seen


def pictures_of(
    engine: atlas.Atlas, wish: ForgetRequest
) -> tuple[tuple[LabelledImage, ...], tuple[LabelledImage, ...]]:
    """The pictures of both sides, as small as the model sees them."""
    reading = _read(engine, wish, StopSign())
    while True:
        try:
            next(reading)
        except StopIteration as ended:
            target, control = ended.value
            return target.shown, control.shown


def rows_of(samples: Sequence[SampleFile]) -> tuple[ClassRow, ...]:
    """Pictures by their class, in the order the classes come up."""
    found: dict[str, list[str]] = {}
    for sample in samples:
        if not sample.truth:
            raise atlas.AtlasError(forget_text.no_class(Path(sample.path).name))
        found.setdefault(sample.truth, []).append(sample.path)
    return tuple(ClassRow(name, tuple(paths)) for name, paths in found.items())


def shell_line(kept: ForgetResult, recipe: str, *, origin: Origin = SHIPPED) -> str:
    """The command that makes the same recipe again from two folders of the same pictures."""
    usual = atlas.NegateConfig().keep
    keep = "" if kept.keep == usual else f" --keep {kept.keep:g}"
    seed = f" --seed {kept.recipe.seed}" if kept.recipe.seed else ""
    folders = f"--target {forget_text.TARGET_FOLDER} --control {forget_text.CONTROL_FOLDER}"
    stopped = [f"# {text.STOPPED_COMMENT}"] if kept.stopped else []
    learned = f"atlas adapt negate {folders}{keep}{seed}{model_flags(origin)} -o {shlex.quote(recipe)}"
    return "\n".join([*bank_lines(origin), *stopped, learned])


@dataclass(frozen=True, eq=False)
class _Side:
    support: atlas.Support
    shown: tuple[LabelledImage, ...]
    left_out: tuple[str, ...]


def _side(name: str, rows: Sequence[ClassRow]) -> FewShotRequest:
    if not rows:
        raise atlas.AtlasError(forget_text.nothing_to(name))
    try:
        return FewShotRequest(tuple(rows))
    except atlas.AtlasError as error:
        raise atlas.AtlasError(forget_text.about(name, str(error))) from None


def _read(
    engine: atlas.Atlas, wish: ForgetRequest, sign: StopSign
) -> Generator[ForgetProgress, None, tuple[_Side, _Side]]:
    """Both sides; a generator that gives them back at its end."""
    sides: list[_Side] = []
    total = wish.target.total + wish.control.total
    for lesson in (wish.target, wish.control):
        before = wish.target.total if sides else 0
        reading = Reading(0, lesson.total)
        for reading in read_lesson(lesson):
            yield ForgetProgress(RunProgress("read", index=before + reading.seen, of=max(total, 1)))
            sign.heed()
        sides.append(_as_side(engine, reading))
    return sides[0], sides[1]


def _as_side(engine: atlas.Atlas, reading: Reading) -> _Side:
    support = reading.support
    assert support is not None  # the last state of a reading has it
    small = as_seen(engine, support.images, support.classes)
    shown = tuple(replace(one, picture=seen) for one, seen in zip(reading.learned, small, strict=True))
    return _Side(atlas.Support(tuple(small), support.labels, support.classes), shown, reading.left_out)


def _spread(side: tuple[LabelledImage, ...], count: int) -> tuple[LabelledImage, ...]:
    """So many of them, at equal distances."""
    if len(side) <= count:
        return side
    return tuple(side[place * len(side) // count] for place in range(count))


def _among(told: atlas.Predictions, classes: tuple[str, ...]) -> atlas.Predictions:
    """The same predictions when only these classes can be chosen."""
    probs = told.probs[:, [told.classes.index(name) for name in classes]]
    return atlas.Predictions(told.names, classes, probs / probs.sum(dim=1, keepdim=True).clamp_min(1e-12))
