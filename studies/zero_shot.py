"""Accuracy on folders of labelled images. Knows nothing of tables or files.

A row says `dataset` (the folder's name), `method`, `accuracy` (a fraction of 1) and `n_test`; `low` and
`high` bound the accuracy with 95 % confidence (Wilson's interval,
which holds at small counts and near 0 and 1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from atlas_engine.data.folders import ClassFolder, LabelledFile, read_labelled_files
from atlas_engine.data.image import Image
from atlas_engine.engine import Atlas
from atlas_engine.heads.cross_validation import wilson_interval
from atlas_engine.runtime import generator

__all__ = ["LogitsOf", "ZeroShotRow", "draw_classes", "draw_images", "engine_logits", "zero_shot"]

CHUNK = 128

LogitsOf = Callable[[Sequence[Image], tuple[str, ...]], Tensor]  # images and class names to (N C)


@dataclass(frozen=True)
class ZeroShotRow:
    """One measurement."""

    dataset: str
    method: str
    accuracy: float
    n_test: int
    low: float
    high: float

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return asdict(self)


def zero_shot(
    folder: ClassFolder,
    logits_of: LogitsOf,
    *,
    method: str,
    on_images: Callable[[int], None] = lambda _: None,
) -> ZeroShotRow:
    """Accuracy of `logits_of` on every picture of the folder; `on_images` is told how many were done."""
    right = 0
    for items, pictures in _chunks(folder.items):
        logits = logits_of(pictures, folder.display_names)
        labels = torch.tensor([item.label for item in items])
        right += int((logits.argmax(dim=1).cpu() == labels).sum())
        on_images(len(items))
    count = len(folder.items)
    low, high = wilson_interval(right, count)
    return ZeroShotRow(folder.name, method, right / count, count, low, high)


def engine_logits(engine: Atlas, *, templates: str | None = None) -> LogitsOf:
    """The zero-shot logits of an engine, its head read once for each set of classes."""
    heads: dict[tuple[str, ...], Tensor] = {}

    def logits_of(pictures: Sequence[Image], classes: tuple[str, ...]) -> Tensor:
        if classes not in heads:
            heads[classes] = engine.head(classes, templates=templates)
        return engine.features(pictures) @ heads[classes].T

    return logits_of


def draw_classes(folder: ClassFolder, most: int | None, *, seed: int = 0) -> ClassFolder:
    """The folder with at most `most` of its classes, drawn by seed; the folder itself if it has no more."""
    if most is None or most >= len(folder.classes):
        return folder
    drawn = sorted(torch.randperm(len(folder.classes), generator=generator(seed))[:most].tolist())
    place = {label: index for index, label in enumerate(drawn)}
    items = tuple(
        LabelledFile(item.name, place[item.label], item.source, item.track)
        for item in folder.items
        if item.label in place
    )
    return ClassFolder(folder.name, tuple(folder.classes[label] for label in drawn), items, folder.ignored)


def draw_images(folder: ClassFolder, most: int | None, *, seed: int = 0) -> ClassFolder:
    """The folder with at most `most` of its pictures, drawn by seed; the folder itself if it has no more."""
    if most is None or most >= len(folder.items):
        return folder
    drawn = sorted(torch.randperm(len(folder.items), generator=generator(seed))[:most].tolist())
    return dataclasses.replace(folder, items=tuple(folder.items[index] for index in drawn))


def _chunks(items: Sequence[LabelledFile]) -> Iterator[tuple[list[LabelledFile], list[Image]]]:
    for start in range(0, len(items), CHUNK):
        read, _ = read_labelled_files(items[start : start + CHUNK], isolated=False)
        yield [item for item, _ in read], [picture for _, picture in read]
