"""Zero-shot accuracy on folders of labelled images: `atlas eval zero-shot`.

row = zero_shot(read_folder("photos/pets"), engine_logits(engine), method="zero-shot")
row.accuracy, row.low, row.high
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.data.folders import ClassFolder, LabelledFile, read_labelled_files
from atlas_engine.data.image import Image
from atlas_engine.engine import Atlas
from atlas_engine.heads.cross_validation import wilson_interval
from studies.grid import StudyRow

__all__ = ["LogitsOf", "ZeroShotRow", "engine_logits", "zero_shot"]

CHUNK = 128

LogitsOf = Callable[[Sequence[Image], tuple[str, ...]], Tensor]  # images and class names to (N C)


@dataclass(frozen=True)
class ZeroShotRow(StudyRow):
    """One method on one folder; `low` and `high` are Wilson's 95 % interval of the accuracy."""

    dataset: str
    method: str
    accuracy: float  # a fraction of 1
    n_test: int
    low: float
    high: float


def zero_shot(
    folder: ClassFolder,
    logits_of: LogitsOf,
    *,
    method: str,
    on_images: Callable[[int], None] = lambda _: None,
) -> ZeroShotRow:
    """The accuracy of `logits_of` on the folder's images; `on_images` is called with each chunk's size."""
    correct = 0
    for items, images in _chunks(folder.items):
        logits = logits_of(images, folder.display_names)
        labels = torch.tensor([item.label for item in items])
        correct += int((logits.argmax(dim=1).cpu() == labels).sum())
        on_images(len(items))
    count = len(folder.items)
    low, high = wilson_interval(correct, count)
    return ZeroShotRow(folder.name, method, correct / count, count, low, high)


def engine_logits(engine: Atlas, *, templates: str | None = None) -> LogitsOf:
    """The zero-shot logits of an engine; a set of class names is embedded once."""
    heads: dict[tuple[str, ...], Tensor] = {}

    def logits_of(images: Sequence[Image], classes: tuple[str, ...]) -> Tensor:
        if classes not in heads:
            heads[classes] = engine.head(classes, templates=templates)
        return engine.features(images) @ heads[classes].T  # (N D) @ (D C)

    return logits_of


def _chunks(items: Sequence[LabelledFile]) -> Iterator[tuple[list[LabelledFile], list[Image]]]:
    for start in range(0, len(items), CHUNK):
        read, _ = read_labelled_files(items[start : start + CHUNK], isolated=False)
        yield [item for item, _ in read], [image for _, image in read]
