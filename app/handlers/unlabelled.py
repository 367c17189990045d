"""Adapt to a visitor's images without labels: from images and class names to a result.

The states are those of `handlers.few_shot`. Where the visitor or a folder gives an image's class, it is
compared with the answer at the end; the engine's test-time adaptation has no place for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import atlas_engine as atlas
from app import text
from app.handlers.ask import check_class_names
from app.handlers.few_shot import RunProgress, follow_run, seconds_to_learn
from app.handlers.settings import UnlabelledSettings, check_sentences
from app.handlers.uploads import LabelledImage, ReadBudget, UploadedImage, read_samples, shrink_to_model
from app.limits import LIMITS
from app.session import StopSignal

__all__ = ["UnlabelledRequest", "adapt_unlabelled"]


@dataclass(frozen=True)
class UnlabelledRequest:
    """Images and class names; checked when built.

    The images are put in the order that a folder of them has, so that the library, given such a folder,
    learns exactly the same.
    """

    images: tuple[UploadedImage, ...]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.images:
            raise atlas.AtlasError(text.unlabelled.NO_IMAGES)
        if len(self.images) > LIMITS.unlabelled_images:
            raise atlas.AtlasError(text.unlabelled.many_images(len(self.images)))
        check_class_names(self.classes)
        in_order = sorted(self.images, key=lambda file: atlas.natural_key(Path(file.path).name))
        object.__setattr__(self, "images", tuple(in_order))


def adapt_unlabelled(
    engine: atlas.Atlas,
    request: UnlabelledRequest,
    settings: UnlabelledSettings | None = None,
    *,
    most_seconds: float = LIMITS.run_seconds,
    stop_signal: StopSignal | None = None,
) -> Iterator[RunProgress]:
    """States from the first image to the finished adaptation.

    Raises an AtlasError when there is nothing to adapt to. An image that cannot be read is left out with the
    engine's sentence.
    """
    settings, stop_signal = settings or UnlabelledSettings(), stop_signal or StopSignal()
    check_sentences(request.classes, settings.templates)
    began, total = time.monotonic(), len(request.images)
    budget = ReadBudget(stop_signal)
    images: list[LabelledImage] = []
    left_out: list[str] = []
    for start in range(0, total, LIMITS.images_per_step):
        yield RunProgress("read", index=start, of=total)
        stop_signal.raise_if_set()
        batch = request.images[start : start + LIMITS.images_per_step]
        read, refusals = read_samples(batch, request.classes, budget)
        images += shrink_to_model(engine, read)
        left_out += refusals
    if not images:
        raise atlas.AtlasError(" ".join([text.unlabelled.NONE_READ, *left_out[:3]]))
    run = engine.test_time(
        [one.image for one in images],
        request.classes,
        objective=settings.objective,
        templates=settings.templates or None,
        seed=settings.seed,
    )
    progress = RunProgress("encode", left_out=tuple(left_out), samples=tuple(images))
    yield progress
    most_seconds = seconds_to_learn(most_seconds, since=began)
    yield from follow_run(engine, run, progress, settings, stop_signal=stop_signal, most_seconds=most_seconds)
