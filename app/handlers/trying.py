"""Answer images at once by a result: each by the model as it was, and by what was learned.

    for progress in try_images(engine, predictors, result, files):
        print(progress.seen, "of", progress.total)
    progress.result.comparison

Images that the result has answered before keep their answers, so that one more image costs one more answer.
Images are kept at the size that the model sees, so that a session can hold many. `correct_label` is for an
answer that was wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import atlas_engine as atlas
from app import text
from app.handlers.few_shot import SavedResult
from app.handlers.uploads import (
    ClassRow,
    LabelledImage,
    UploadedImage,
    check_samples,
    read_samples,
    shrink_to_model,
)
from app.limits import LIMITS
from app.predictors import Predictors
from app.session import StopSignal

__all__ = ["TryProgress", "add_to_class", "answered_by", "correct_label", "try_images"]


@dataclass(frozen=True)
class TryProgress:
    """How far the answers have come; `result` holds those that are there."""

    result: SavedResult
    total: int
    seen: int  # images that are answered or left out
    fresh: tuple[str, ...] = ()  # paths of the images that were not answered before
    left_out: tuple[str, ...] = ()
    stopped: bool = False

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.stopped or self.seen == self.total


def try_images(
    engine: atlas.Atlas,
    predictors: Predictors,
    result: SavedResult,
    files: Sequence[UploadedImage],
    *,
    stop_signal: StopSignal | None = None,
) -> Iterator[TryProgress]:
    """The result with these images answered, some at a time; images that are not among them go.

    Those that the result adapted to, without labels, stay.

    Raises an AtlasError where there are too many images, or the recipe is for another model. An image that
    cannot be read is left out with the engine's sentence.
    """
    check_samples(files)
    stop_signal, given = stop_signal or StopSignal(), {file.path for file in files}
    pinned = [one for one in result.samples if one.path in result.pinned and one.path not in given]
    files = [*(UploadedImage(one.path, one.label) for one in pinned), *files]
    known = {sample.path: place for place, sample in enumerate(result.samples)}
    kept = [file for file in files if file.path in known]
    fresh = [file for file in files if file.path not in known]
    answered = _keep(result, [known[file.path] for file in kept], labels=kept)
    progress = TryProgress(answered, len(files), len(kept), tuple(file.path for file in fresh))
    yield progress
    for start in range(0, len(fresh), LIMITS.images_per_step):
        if stop_signal.is_set:
            yield replace(progress, stopped=True)
            return
        batch = fresh[start : start + LIMITS.images_per_step]
        images, refusals = read_samples(batch, result.recipe.classes)
        small = shrink_to_model(engine, images)
        progress = replace(
            progress,
            result=_extend(engine, predictors, progress.result, small),
            seen=progress.seen + len(batch),
            left_out=(*progress.left_out, *refusals),
        )
        yield progress


def answered_by(result: SavedResult | None, names: Sequence[str]) -> SavedResult | None:
    """The result, if it answers under these class names; None where others are asked for.

    No names at all are those of the result.
    """
    if result is None or not names:
        return result
    same = {name.casefold() for name in names} == {name.casefold() for name in result.recipe.classes}
    return result if same else None


def correct_label(result: SavedResult, path: str, label: str) -> SavedResult:
    """The same result, with the class that a visitor gave for one of its images."""
    if label not in result.recipe.classes:
        raise atlas.AtlasError(text.trying.no_such_class(label))
    if path not in {sample.path for sample in result.samples}:
        raise atlas.AtlasError(text.trying.IMAGE_GONE)
    samples = (replace(sample, label=label) if sample.path == path else sample for sample in result.samples)
    return replace(result, samples=tuple(samples))


def add_to_class(rows: Sequence[ClassRow], classes: Sequence[str], path: str, label: str) -> list[ClassRow]:
    """The rows with one more image in the class `label`; rows for the classes that have none come last.

    An image stands in one class only: it leaves the one that it was in.
    """
    given = [row for row in rows if row.name or row.paths]
    names = {atlas.tidy_name(row.name).casefold() for row in given}
    given += [ClassRow(name, ()) for name in classes if name.casefold() not in names]
    return [
        ClassRow(
            row.name,
            (*(one for one in row.paths if one != path), *([path] if _is_called(row, label) else [])),
        )
        for row in given
    ]


def _is_called(row: ClassRow, label: str) -> bool:
    return atlas.tidy_name(row.name).casefold() == label.casefold()


def _keep(result: SavedResult, places: list[int], *, labels: Sequence[UploadedImage]) -> SavedResult:
    """The result with the samples at these places only, each with the label that its file has now."""
    names = {name.casefold(): name for name in result.recipe.classes}
    samples = tuple(
        replace(result.samples[place], label=names.get((file.label or "").casefold()))
        for place, file in zip(places, labels, strict=True)
    )
    comparison = result.comparison.select(places) if result.comparison is not None and places else None
    return replace(result, samples=samples, comparison=comparison)


def _extend(
    engine: atlas.Atlas, predictors: Predictors, result: SavedResult, images: Sequence[LabelledImage]
) -> SavedResult:
    if not images:
        return result
    more = predictors.compare(engine, result.recipe, [one.image for one in images])
    comparison = more if result.comparison is None else result.comparison.join(more)
    return replace(result, samples=(*result.samples, *images), comparison=comparison)
