"""Learn from a visitor's labelled images: from a request to a finished adaptation.

request = FewShotRequest((ClassRow("otter", paths), ClassRow("seal", more_paths)))
for progress in adapt_few_shot(engine, request):
    print(progress.phase, progress.share)
print(progress.result.sentence)

A run has a deadline; stopped or late, it keeps the best it has. `RunProgress`, `SavedResult` and
`follow_run` also serve images without labels (`handlers.unlabelled`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import atlas_engine as atlas
from app import text
from app.handlers.settings import FewShotSettings, UnlabelledSettings, check_sentences
from app.handlers.uploads import (
    ClassRow,
    LabelledImage,
    ReadBudget,
    UploadedImage,
    check_samples,
    read_images,
    read_samples,
    shrink_to_model,
)
from app.limits import LIMITS
from app.session import StopSignal

__all__ = [
    "ZERO_SHOT",
    "FewShotRequest",
    "ReadProgress",
    "RunProgress",
    "SavedResult",
    "adapt_few_shot",
    "advance",
    "compare_samples",
    "follow_run",
    "read_request",
    "seconds_to_learn",
    "show_learned",
]


ZERO_SHOT = "zero-shot"  # as the engine calls it
MAX_REPORTED = 3  # images


@dataclass(frozen=True)
class FewShotRequest:
    """Classes with their images, and images to try it on; checked when built. Empty rows are dropped.

    Classes and their images are put in the order that a folder of them has, so that the library, given such
    a folder, learns exactly the same.
    """

    rows: tuple[ClassRow, ...]
    samples: tuple[UploadedImage, ...] = ()

    def __post_init__(self) -> None:
        tidied = [ClassRow(atlas.tidy_name(row.name), row.paths) for row in self.rows]
        filled = {place: row for place, row in enumerate(tidied, start=1) if row.name or row.paths}
        _check_rows(filled)
        in_order = sorted(map(_sort_images, filled.values()), key=lambda row: atlas.natural_key(row.name))
        object.__setattr__(self, "rows", tuple(in_order))
        check_samples(self.samples)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(row.name for row in self.rows)

    @property
    def total(self) -> int:
        """Images to learn from and to try it on."""
        return sum(len(row.paths) for row in self.rows) + len(self.samples)


@dataclass(frozen=True)
class ReadProgress:
    """How far the reading of a request has come; the support is there when all has been read."""

    seen: int
    total: int
    support: atlas.Support | None = None
    learned: tuple[LabelledImage, ...] = ()  # the support's images with their paths and classes
    samples: tuple[LabelledImage, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class SavedResult:
    """A recipe, how it came about, and the samples it was tried on: what a visitor's session holds."""

    recipe: atlas.Recipe
    sentence: str  # the engine's verdict
    settings: FewShotSettings | UnlabelledSettings | None = None  # None for a recipe that was brought along
    helped: bool | None = None
    estimates: tuple[atlas.Estimate, ...] = ()
    losses: tuple[float, ...] = ()
    seconds: float = 0.0
    stopped: bool = False
    samples: tuple[LabelledImage, ...] = ()
    comparison: atlas.Comparison | None = None
    learned: tuple[LabelledImage, ...] = ()  # some of the images it learned from
    example: bool = False  # whether it ships with the page
    shown_anyway: bool = False  # what was learned, though the model as it was did better
    unfinished: bool = False  # a first guess of a run that is still learning
    pinned: frozenset[str] = frozenset()  # paths of samples that stay: the images that it adapted to
    advice: tuple[str, ...] = ()  # what would help, in sentences
    alternatives: Mapping[str, atlas.Recipe] = field(default_factory=dict)  # what else was learned, by method

    def __deepcopy__(self, memo: dict[int, Any]) -> SavedResult:
        return self  # frozen all through

    @property
    def labels(self) -> tuple[str | None, ...]:
        """The class of each sample, where it is known."""
        return tuple(sample.label for sample in self.samples)

    @property
    def kept_base(self) -> bool:
        """Whether the model as it was has been kept, because nothing that was learned beat it."""
        return self.recipe.method == ZERO_SHOT

    @property
    def learned_instead(self) -> atlas.Recipe | None:
        """What was learned where the model as it was has been kept: the last of the recipes, if any."""
        learned = [recipe for method, recipe in self.alternatives.items() if method != ZERO_SHOT]
        return learned[-1] if self.kept_base and learned else None

    def right_of(self, method: str) -> tuple[int, int] | None:
        """How many images a method named right of those it had not seen; None where it was not measured."""
        return count_right(self.estimates, method)

    @property
    def method_was_asked_for(self) -> bool:
        """Whether the visitor chose this very method, so that nothing else was tried or measured."""
        return self.settings is not None and self.settings.method == self.recipe.method


def count_right(estimates: Sequence[atlas.Estimate], method: str) -> tuple[int, int] | None:
    """How many images a method named right, and of how many; None where it was not measured."""
    found = next((one for one in estimates if one.method == method), None)
    return None if found is None else (round(found.accuracy * found.images), found.images)


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come. `result` is there at the end."""

    phase: str  # read, then a phase of the engine: encode, preview or learn; at last done
    index: int = 0
    of: int = 1
    share: float = 0.0
    seconds_left: float | None = None
    losses: tuple[float, ...] = ()
    estimates: tuple[atlas.Estimate, ...] = ()
    left_out: tuple[str, ...] = ()
    samples: tuple[LabelledImage, ...] = ()
    learned: tuple[LabelledImage, ...] = ()  # some of the images to learn from
    preview: SavedResult | None = None  # a first guess, at the one state that brings it
    result: SavedResult | None = None

    @property
    def just_begun(self) -> bool:
        """Whether this is a run's first state."""
        return self.phase == "read" and self.index == 0


def adapt_few_shot(
    engine: atlas.Atlas,
    request: FewShotRequest,
    settings: FewShotSettings | None = None,
    *,
    most_seconds: float = LIMITS.run_seconds,
    stop_signal: StopSignal | None = None,
) -> Iterator[RunProgress]:
    """States from the first image to the finished adaptation.

    Raises an AtlasError when nothing can be learned from these images.
    """
    settings, stop_signal = settings or FewShotSettings(), stop_signal or StopSignal()
    check_sentences(request.classes, settings.templates)
    start, reading = time.monotonic(), ReadProgress(0, request.total)
    budget = ReadBudget(stop_signal)
    for reading in read_request(request, budget):
        yield RunProgress("read", index=reading.seen, of=max(reading.total, 1))
        stop_signal.raise_if_set()
    assert reading.support is not None  # the last state of a reading has it
    run = engine.few_shot(
        reading.support,
        method=settings.method,
        config=settings.config,
        templates=settings.templates or None,
        seed=settings.seed,
    )
    some = reading.learned[:: max(1, len(reading.learned) // LIMITS.inspected_images)]
    progress = RunProgress(
        "encode",
        left_out=reading.left_out,
        samples=shrink_to_model(engine, reading.samples),
        learned=shrink_to_model(engine, some[: LIMITS.inspected_images]),
    )
    yield progress
    most_seconds = seconds_to_learn(most_seconds, since=start)
    states = follow_run(engine, run, progress, settings, stop_signal=stop_signal, most_seconds=most_seconds)
    for progress in states:
        if progress.result is None or not settings.checks_itself:
            yield progress
        else:
            doubts = check_support(engine, reading.support, settings)
            told = replace(progress.result, advice=(*progress.result.advice, *doubts))
            yield replace(progress, result=told)


def check_support(engine: atlas.Atlas, support: atlas.Support, settings: FewShotSettings) -> tuple[str, ...]:
    """Sentences on the images whose class looks wrong, or that fit nowhere; the surest few."""
    check = engine.check(support, templates=settings.templates or None, seed=settings.seed)
    wrong = [text.result.suspect(one.image, one.label, one.suggested) for one in check.suspects]
    odd = [text.result.odd(one.image, one.label) for one in check.odd]
    return tuple([*wrong, *odd][:MAX_REPORTED])


def seconds_to_learn(most_seconds: float, *, since: float) -> float:
    """What is left of a run's seconds after reading, which counts too, but leaves a little to learn in."""
    left = most_seconds - (time.monotonic() - since)
    return max(left, min(most_seconds, LIMITS.least_run_seconds))


def read_request(request: FewShotRequest, budget: ReadBudget | None = None) -> Iterator[ReadProgress]:
    """Read every image; the last state holds the support and the samples."""
    budget = budget or ReadBudget()
    files = [
        (label, UploadedImage(path, row.name)) for label, row in enumerate(request.rows) for path in row.paths
    ]
    learned: list[LabelledImage] = []
    labels: list[int] = []
    left_out: list[str] = []
    for seen, (label, file) in enumerate(files):
        if seen % LIMITS.images_per_step == 0:
            yield ReadProgress(seen, request.total)
        images, refusals = read_images([file], budget)
        learned += images
        labels += [label] * len(images)
        left_out += refusals
    yield ReadProgress(len(files), request.total)
    samples, refusals = read_samples(request.samples, request.classes, budget)
    left_out += refusals
    try:
        support = atlas.Support(tuple(one.image for one in learned), tuple(labels), request.classes)
    except atlas.AtlasError as error:
        raise atlas.AtlasError(" ".join([str(error), *left_out[:3]])) from None
    yield ReadProgress(request.total, request.total, support, tuple(learned), samples, tuple(left_out))


def follow_run(
    engine: atlas.Atlas,
    run: atlas.Run[atlas.AdaptResult],
    progress: RunProgress,
    settings: FewShotSettings | UnlabelledSettings,
    *,
    stop_signal: StopSignal,
    most_seconds: float,
) -> Iterator[RunProgress]:
    """States of a run whose images have been read, to its result; cancelled by the signal or the deadline."""
    for step in stop_signal.follow(run):
        progress = _until(advance(progress, step), most_seconds - step.seconds)
        if step.preview is not None:
            yield replace(progress, preview=_first_guess(engine, step.preview, progress, settings))
        else:
            yield progress
        if step.seconds > most_seconds:
            run.cancel()
    result = run.result()
    yield replace(
        progress,
        phase="done",
        share=1.0,
        seconds_left=0.0,
        estimates=result.estimates,
        result=_save(engine, result, progress, settings),
    )


def advance(progress: RunProgress, step: atlas.Step) -> RunProgress:
    """The state that a step of the engine leads to."""
    losses = progress.losses if math.isnan(step.loss) else (*progress.losses, step.loss)
    return replace(
        progress,
        phase=step.phase,
        index=step.index,
        of=step.of,
        share=min(step.share or progress.share, 1.0),
        seconds_left=step.seconds_left,
        losses=losses,
        estimates=step.estimates,
    )


def _until(progress: RunProgress, seconds: float) -> RunProgress:
    """The same state with no more time left than the run still has."""
    if progress.seconds_left is None:
        return progress
    return replace(progress, seconds_left=min(progress.seconds_left, max(seconds, 0.0)))


def show_learned(engine: atlas.Atlas, result: SavedResult) -> SavedResult:
    """What was learned, in place of the model as it was, which did better and had been kept."""
    learned = result.learned_instead
    if learned is None:
        raise atlas.AtlasError(text.result.NOTHING_INSTEAD)
    return replace(
        result,
        recipe=learned,
        sentence=text.result.SHOWN_ANYWAY,
        comparison=compare_samples(engine, learned, result.samples),
        shown_anyway=True,
    )


def compare_samples(
    engine: atlas.Atlas, recipe: atlas.Recipe, samples: tuple[LabelledImage, ...]
) -> atlas.Comparison | None:
    """The samples by zero-shot and by the recipe; None when there are none."""
    return engine.compare([sample.image for sample in samples], recipe) if samples else None


def _first_guess(
    engine: atlas.Atlas,
    recipe: atlas.Recipe,
    progress: RunProgress,
    settings: FewShotSettings | UnlabelledSettings,
) -> SavedResult:
    """The recipe of a run that is still learning, tried on the samples."""
    return SavedResult(
        recipe,
        text.result.PREVIEW_NOTE,
        settings=settings,
        estimates=progress.estimates,
        samples=progress.samples,
        comparison=compare_samples(engine, recipe, progress.samples),
        learned=progress.learned,
        unfinished=True,
    )


def _save(
    engine: atlas.Atlas,
    result: atlas.AdaptResult,
    progress: RunProgress,
    settings: FewShotSettings | UnlabelledSettings,
) -> SavedResult:
    return SavedResult(
        result.recipe,
        result.verdict.sentence,
        settings=settings,
        helped=result.verdict.helped,
        estimates=result.estimates,
        losses=progress.losses,
        seconds=result.seconds,
        stopped=result.outcome.value != "finished",
        samples=progress.samples,
        comparison=compare_samples(engine, result.recipe, progress.samples),
        learned=progress.learned,
        advice=() if result.advice is None else (_tell_advice(result.advice),),
        pinned=frozenset(one.path for one in progress.samples if isinstance(settings, UnlabelledSettings)),
        alternatives=result.alternatives,
    )


def _tell_advice(advice: atlas.Advice) -> str:
    """Whether more images would help, in a visitor's words."""
    if advice.now is None or advice.then is None:
        return text.result.ONE_IMAGE_EACH
    then = (advice.then.accuracy, advice.then.low, advice.then.high)
    tell = text.result.enough_images if advice.enough else text.result.more_images
    return tell(advice.more_per_class, advice.now.accuracy, then)


def _sort_images(row: ClassRow) -> ClassRow:
    return ClassRow(row.name, tuple(sorted(row.paths, key=lambda path: atlas.natural_key(Path(path).name))))


def _check_rows(rows: Mapping[int, ClassRow]) -> None:
    """Refuse rows, given by their place on the page, that lack a name or images, or are too few or many."""
    for place, row in rows.items():
        if not row.name:
            raise atlas.AtlasError(text.teach.no_name(place))
        if not row.paths:
            raise atlas.AtlasError(text.teach.no_images(row.name))
    if len(rows) < 2:
        raise atlas.AtlasError(text.teach.few_rows(len(rows)))
    if len(rows) > LIMITS.rows:
        raise atlas.AtlasError(text.teach.many_rows(len(rows)))
    count = sum(len(row.paths) for row in rows.values())
    if count > LIMITS.support_images:
        raise atlas.AtlasError(text.teach.many_support_images(count))
