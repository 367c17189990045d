"""Forget some classes and keep others: from images of both to what each strength of forgetting costs.

request = ForgetRequest.of(target_rows, control_rows, keep=0.95, seed=0)
for progress in forget(engine, request):
    print(progress.run.phase, progress.run.share)
print(progress.result.curve)                       # accuracies at STRENGTHS

The states are those of `handlers.few_shot`, with a search before the learning, and a measurement at each
strength after it. A run has a deadline; stopped or late, it keeps the best it has.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import atlas_engine as atlas
from app import text
from app.handlers.few_shot import (
    FewShotRequest,
    ReadProgress,
    RunProgress,
    advance,
    read_request,
    seconds_to_learn,
)
from app.handlers.takeaway import SHIPPED, ModelOrigin, bank_commands, model_flags
from app.handlers.uploads import ClassRow, LabelledImage, ReadBudget, UploadedImage, shrink_to_model
from app.limits import LIMITS
from app.session import StopSignal

__all__ = [
    "STRENGTHS",
    "ForgetProgress",
    "ForgetRequest",
    "ForgetResult",
    "SideComparison",
    "compare_at",
    "forget",
    "group_by_class",
    "read_sides",
    "shell_command",
]

STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""What the slider can be set to: 0 is zero-shot, 1 what was learned."""

RUN_SHARE = 0.85  # of the work, about; the rest is the measurement
COMPARED_IMAGES = 6  # of each side, at a strength

Images = tuple[LabelledImage, ...]


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
        """A checked request; a refusal names the side that it is about."""
        return cls(
            _check_side(text.forget.TARGET_HEADING, target),
            _check_side(text.forget.CONTROL_HEADING, control),
            keep=keep,
            seed=seed,
        )


@dataclass(frozen=True, eq=False)
class ForgetResult:
    """A recipe that forgets, how it came about, accuracies at each strength, and the images of both sides.

    The images are as small as the model sees them, since they stay in memory with a visitor's session.
    """

    recipe: atlas.Recipe
    sentence: str
    helped: bool | None
    curve: tuple[atlas.ForgettingPoint, ...]
    target: Images
    control: Images
    keep: float
    seconds: float = 0.0
    stopped: bool = False
    example: bool = False  # whether it ships with the page

    def __deepcopy__(self, memo: dict[int, Any]) -> ForgetResult:
        return self  # frozen all through

    def at(self, strength: float) -> atlas.ForgettingPoint:
        """What was measured at the strength nearest to this one."""
        return min(self.curve, key=lambda point: abs(point.scale - strength))


@dataclass(frozen=True)
class ForgetProgress:
    """How far it has come. `result` is there at the end."""

    run: RunProgress
    result: ForgetResult | None = None


@dataclass(frozen=True)
class SideComparison:
    """Some images of one side, by the model as it was and at a strength, among the classes of their side."""

    comparison: atlas.Comparison
    images: Images


def forget(
    engine: atlas.Atlas,
    request: ForgetRequest,
    *,
    most_seconds: float = LIMITS.run_seconds,
    stop_signal: StopSignal | None = None,
) -> Iterator[ForgetProgress]:
    """States from the first image to the measured strengths.

    Raises an AtlasError when nothing can be learned from these images.
    """
    stop_signal = stop_signal or StopSignal()
    start = time.monotonic()
    budget = ReadBudget(stop_signal)
    target, control = yield from _read(engine, request, stop_signal, budget)
    most_seconds = seconds_to_learn(most_seconds, since=start)

    # search and learn
    run = engine.negate(target.support, control.support, keep=request.keep, seed=request.seed)
    progress = RunProgress("encode", left_out=(*target.left_out, *control.left_out))
    yield ForgetProgress(progress)
    for step in stop_signal.follow(run):
        progress = advance(progress, step)
        yield ForgetProgress(replace(progress, share=RUN_SHARE * progress.share, estimates=()))
        if step.seconds > most_seconds:
            run.cancel()
    result = run.result()
    stopped = result.outcome.value != "finished"

    # measure both sides at each strength
    strengths = (STRENGTHS[0], STRENGTHS[-1]) if stopped else STRENGTHS  # who stops wants to be done
    curve: list[atlas.ForgettingPoint] = []
    for place, strength in enumerate(strengths):
        share = RUN_SHARE + (1 - RUN_SHARE) * place / len(strengths)
        measuring = replace(progress, phase="measure", index=place, of=len(strengths), share=share)
        yield ForgetProgress(replace(measuring, seconds_left=None, estimates=()))
        curve += atlas.forgetting_curve(
            engine, result.recipe, target.support, control.support, scales=(strength,)
        )
    saved = ForgetResult(
        result.recipe,
        result.verdict.sentence,
        result.verdict.helped,
        tuple(curve),
        target.images,
        control.images,
        keep=request.keep,
        seconds=result.seconds,
        stopped=stopped,
    )
    yield ForgetProgress(replace(progress, phase="done", share=1.0, seconds_left=0.0), saved)


def compare_at(
    engine: atlas.Atlas, result: ForgetResult, strength: float
) -> tuple[SideComparison, SideComparison]:
    """Some images of the target and of the control at this strength."""
    scaled = atlas.scale_recipe(result.recipe, strength)

    def compare(side: Images) -> SideComparison:
        images = _evenly_spaced(side, COMPARED_IMAGES)
        classes = tuple(dict.fromkeys(one.label for one in side if one.label is not None))
        both = engine.compare([one.image for one in images], scaled)
        among_own = atlas.Comparison(_restrict(both.zero_shot, classes), _restrict(both.adapted, classes))
        return SideComparison(among_own, images)

    return compare(result.target), compare(result.control)


def read_sides(engine: atlas.Atlas, request: ForgetRequest) -> tuple[Images, Images]:
    """The images of the target and of the control, as small as the model sees them."""
    reading = _read(engine, request, StopSignal(), ReadBudget())
    while True:
        try:
            next(reading)
        except StopIteration as ended:
            target, control = ended.value
            return target.images, control.images


def group_by_class(files: Sequence[UploadedImage]) -> tuple[ClassRow, ...]:
    """Images by their class, in the order the classes come up."""
    found: dict[str, list[str]] = {}
    for file in files:
        if not file.label:
            raise atlas.AtlasError(text.forget.no_class(Path(file.path).name))
        found.setdefault(file.label, []).append(file.path)
    return tuple(ClassRow(name, tuple(paths)) for name, paths in found.items())


def shell_command(result: ForgetResult, recipe: str, *, origin: ModelOrigin = SHIPPED) -> str:
    """The command that makes the same recipe again from two folders of the same images."""
    usual = atlas.NegateConfig().keep
    keep = "" if result.keep == usual else f" --keep {result.keep:g}"
    seed = f" --seed {result.recipe.seed}" if result.recipe.seed else ""
    folders = f"--target {text.forget.TARGET_FOLDER} --control {text.forget.CONTROL_FOLDER}"
    stopped = [f"# {text.takeaway.STOPPED_COMMENT}"] if result.stopped else []
    command = f"atlas adapt negate {folders}{keep}{seed}{model_flags(origin)} -o {shlex.quote(recipe)}"
    return "\n".join([*bank_commands(origin), *stopped, command])


@dataclass(frozen=True, eq=False)
class _Side:
    support: atlas.Support
    images: Images
    left_out: tuple[str, ...]


def _check_side(name: str, rows: Sequence[ClassRow]) -> FewShotRequest:
    if not rows:
        raise atlas.AtlasError(text.forget.no_images(name))
    try:
        return FewShotRequest(tuple(rows))
    except atlas.AtlasError as error:
        raise atlas.AtlasError(text.forget.refused_side(name, str(error))) from None


def _read(
    engine: atlas.Atlas, request: ForgetRequest, stop_signal: StopSignal, budget: ReadBudget
) -> Generator[ForgetProgress, None, tuple[_Side, _Side]]:
    """Yields how far the reading is; returns the target and the control."""
    sides: list[_Side] = []
    total = request.target.total + request.control.total
    for side in (request.target, request.control):
        before = request.target.total if sides else 0
        reading = ReadProgress(0, side.total)
        for reading in read_request(side, budget):
            yield ForgetProgress(RunProgress("read", index=before + reading.seen, of=max(total, 1)))
            stop_signal.raise_if_set()
        sides.append(_shrink_side(engine, reading))
    return sides[0], sides[1]


def _shrink_side(engine: atlas.Atlas, reading: ReadProgress) -> _Side:
    support = reading.support
    assert support is not None  # the last state of a reading has it
    images = shrink_to_model(engine, reading.learned)
    small = atlas.Support(tuple(one.image for one in images), support.labels, support.classes)
    return _Side(small, images, reading.left_out)


def _evenly_spaced(images: Images, count: int) -> Images:
    if len(images) <= count:
        return images
    return tuple(images[place * len(images) // count] for place in range(count))


def _restrict(predictions: atlas.Predictions, classes: tuple[str, ...]) -> atlas.Predictions:
    """The same predictions when only these classes can be chosen: probabilities (N C), summing to 1."""
    probs = predictions.probs[:, [predictions.classes.index(name) for name in classes]]
    return atlas.Predictions(
        predictions.names, classes, probs / probs.sum(dim=1, keepdim=True).clamp_min(1e-12)
    )
