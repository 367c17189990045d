"""A training set drawn from a folder of classes, to learn from a share of, and images to measure on.

    drawn = draw_training_set(folder, engine.backbone.preprocessing, settings=TrainingSetSettings(), seed=0)
    drawn.train.pixels[: drawn.count(25)]            # a quarter of the training set

The seed decides the classes, the split and the order. A smaller share is the beginning of a larger one, and
has about the same proportions of classes as the whole. No test image shares a track with a training image, or
is a near-duplicate of one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from atlas_engine.bank.train import LabelledPixels
from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.data.split import group_near_duplicates, split_groups
from atlas_engine.runtime import generator
from studies.problems.draw import ALIKE, draw_classes, draw_per_class, read_pixels

__all__ = ["TrainingSet", "TrainingSetSettings", "draw_training_set"]


@dataclass(frozen=True, kw_only=True)
class TrainingSetSettings(Settings):
    """Which training sets are drawn."""

    seeds: int = setting(3, help="training sets drawn from each folder", low=1)
    max_classes: int = setting(10, help="most classes, drawn by seed", low=2)
    max_train: int = setting(300, help="most images of a training set", low=2)
    max_test: int = setting(150, help="most images to measure on, about", low=2)


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Training images in the order in which shares are taken, and images to measure on."""

    target: str  # the folder's name
    seed: int
    classes: tuple[str, ...]
    train: LabelledPixels
    test: LabelledPixels

    def count(self, percent: float) -> int:
        """How many training images `percent` of them are: at least one."""
        return max(1, round(len(self.train) * percent / 100))

    @property
    def digest(self) -> str:
        """A hash of all pixels, labels and class names."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for part in (self.train, self.test):
            digest.update(part.pixels.numpy().data)
            digest.update(repr(part.labels.tolist()).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        size = f"{len(self.train)} to learn from, {len(self.test)} to measure on"
        return f"TrainingSet({self.target}, seed {self.seed}, {len(self.classes)} classes, {size})"


def draw_training_set(
    folder: ClassFolder, shape: Preprocessing, *, settings: TrainingSetSettings, seed: int
) -> TrainingSet:
    """The training set of this seed; every class gives about the same share of its images to the test."""
    drawn = draw_classes(folder, settings.max_classes, seed=seed)
    wanted = settings.max_train + settings.max_test
    items = draw_per_class(drawn, max(2, wanted // len(drawn.classes)), seed=seed)
    labels = [item.label for item in items]
    pixels = read_pixels(items, shape)
    groups = group_near_duplicates(pixels, labels, tracks=[item.track for item in items], alike=ALIKE)
    split = split_groups(
        labels, groups, val_share=0.0, test_share=settings.max_test / wanted, seed=seed, names=drawn.classes
    )

    def part(positions: Sequence[int]) -> LabelledPixels:
        return LabelledPixels(pixels[list(positions)], torch.tensor([labels[index] for index in positions]))

    order = _interleave_classes([labels[index] for index in split.train], seed=seed)
    train = part([split.train[index] for index in order])
    return TrainingSet(folder.name, seed, drawn.display_names, train, part(split.test))


def _interleave_classes(labels: Sequence[int], *, seed: int) -> list[int]:
    """Positions in an order whose every beginning has about the class proportions of the whole.

    The i-th of n images of a class stands at (i + u) / n, with one u in 0 … 1 for each class.
    """
    draw = generator(seed)
    rank: dict[int, float] = {}
    for label in sorted(set(labels)):
        own = [index for index, known in enumerate(labels) if known == label]
        start = float(torch.rand((), generator=draw))
        for i, index in enumerate(torch.randperm(len(own), generator=draw).tolist()):
            rank[own[index]] = (i + start) / len(own)
    return sorted(rank, key=lambda index: rank[index])
