"""Adapt to a visitor's photos without labels: from photos and names to a result. Knows nothing of Gradio.

The states are those of a lesson (`handlers.teach`). What the visitor or a folder tells of a photo's class is
compared with the answers when all is over; the engine's test-time adaptation has no place for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import atlas_engine as atlas
from app import roll_text, text
from app.handlers.choices import RollChoices
from app.handlers.lesson import LabelledImage, SampleFile, read_samples
from app.handlers.pictures import as_seen
from app.handlers.teach import RunProgress, follow
from app.limits import LIMITS
from app.state import StopSign

__all__ = ["Roll", "adapt_roll"]


@dataclass(frozen=True)
class Roll:
    """Photos and class names, checked: both are there, and no limit is passed.

    The photos are put in the order that a folder of them has, so that the library, given such a folder,
    learns exactly the same.
    """

    photos: tuple[SampleFile, ...]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.photos:
            raise atlas.AtlasError(roll_text.NO_PHOTOS)
        if len(self.photos) > LIMITS.roll:
            raise atlas.AtlasError(roll_text.many_photos(len(self.photos)))
        if len(self.classes) < 2:
            raise atlas.AtlasError(text.few_classes(len(self.classes)))
        if len(self.classes) > LIMITS.classes:
            raise atlas.AtlasError(text.many_classes(len(self.classes)))
        object.__setattr__(self, "photos", tuple(sorted(self.photos, key=_natural_name)))


def adapt_roll(
    engine: atlas.Atlas,
    roll: Roll,
    choices: RollChoices | None = None,
    *,
    most_seconds: float = LIMITS.run_seconds,
    sign: StopSign | None = None,
) -> Iterator[RunProgress]:
    """States from the first photo to the finished adaptation.

    Raises an AtlasError when there is nothing to adapt to. A photo that cannot be read is left out with the
    engine's sentence.
    """
    chosen, total, sign = choices or RollChoices(), len(roll.photos), sign or StopSign()
    photos: list[LabelledImage] = []
    left_out: list[str] = []
    for start in range(0, total, LIMITS.images_per_step):
        yield RunProgress("read", index=start, of=total)
        sign.heed()
        shown, refused = read_samples(roll.photos[start : start + LIMITS.images_per_step], roll.classes)
        small = as_seen(engine, [photo.picture for photo in shown], roll.classes)
        photos += [replace(photo, picture=seen) for photo, seen in zip(shown, small, strict=True)]
        left_out += refused
    if not photos:
        raise atlas.AtlasError(" ".join([roll_text.NONE_READ, *left_out[:3]]))
    pictures = [photo.picture for photo in photos]
    run = engine.test_time(pictures, roll.classes, objective=chosen.objective, seed=chosen.seed)
    taught = RunProgress("look", left_out=tuple(left_out), samples=tuple(photos))
    yield taught
    yield from follow(engine, run, taught, chosen, sign=sign, most_seconds=most_seconds)


def _natural_name(photo: SampleFile) -> tuple[object, ...]:
    return atlas.natural_key(Path(photo.path).name)
