"""A training set drawn from a folder of classes, to learn from a share of, and pictures to measure on.

    drawn = draw_training_set(folder, engine.backbone.preprocessing, settings=SetSettings(), seed=0)
    drawn.train.squares[: drawn.count(25)]            # a quarter of the training set

The seed decides the classes, the cut and the order. A smaller share is the beginning of a larger one, and has
of each class about as much as the whole has. No test picture shares a track with a training picture, or looks
like one. Knows nothing of models or banks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from studies.problems.draw import ALIKE, draw_classes, draw_per_class, read_pixels
from torch import Tensor

from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.data.split import near_duplicate_groups, split_groups
from atlas_engine.runtime import generator

__all__ = ["LabelledSet", "TrainingSet", "TrainingSetSettings", "draw_training_set"]


@dataclass(frozen=True, kw_only=True)
class TrainingSetSettings(Settings):
    """Which training sets are drawn."""

    seeds: int = setting(3, help="training sets drawn from each folder", low=1)
    max_classes: int = setting(10, help="most classes, drawn by seed", low=2)
    max_train: int = setting(300, help="most pictures of a training set", low=2)
    max_test: int = setting(150, help="most pictures to measure on, about", low=2)


@dataclass(frozen=True, eq=False)
class LabelledSet:
    """Pictures as the tower's squares, and their classes."""

    squares: Tensor  # (N 3 S S) uint8
    labels: Tensor  # (N)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """A training set in the order in which shares of it are taken, and pictures to measure on."""

    target: str
    seed: int
    classes: tuple[str, ...]
    train: LabelledSet
    test: LabelledSet

    def count(self, percent: float) -> int:
        """How many training pictures that many percent are: at least one."""
        return max(1, round(len(self.train) * percent / 100))

    @property
    def digest(self) -> str:
        """What stands for the whole of it: pixels, labels and class names."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for part in (self.train, self.test):
            digest.update(part.squares.numpy().data)
            digest.update(repr(part.labels.tolist()).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        size = f"{len(self.train)} to learn from, {len(self.test)} to measure on"
        return f"TrainingSet({self.target}, seed {self.seed}, {len(self.classes)} classes, {size})"


def draw_training_set(
    folder: ClassFolder, shape: Preprocessing, *, settings: TrainingSetSettings, seed: int
) -> TrainingSet:
    """The training set of this seed; every class gives about the same share of its pictures to the test."""
    drawn = draw_classes(folder, settings.max_classes, seed=seed)
    wanted = settings.max_train + settings.max_test
    items = draw_per_class(drawn, max(2, wanted // len(drawn.classes)), seed=seed)
    labels = [item.label for item in items]
    squares = read_pixels(items, shape)
    groups = near_duplicate_groups(squares, labels, tracks=[item.track for item in items], alike=ALIKE)
    split = split_groups(
        labels, groups, val_share=0.0, test_share=settings.max_test / wanted, seed=seed, names=drawn.classes
    )

    def part(positions: Sequence[int]) -> LabelledSet:
        return LabelledSet(squares[list(positions)], torch.tensor([labels[place] for place in positions]))

    order = _in_turn([labels[place] for place in split.train], seed=seed)
    train = part([split.train[place] for place in order])
    return TrainingSet(folder.name, seed, drawn.pretty, train, part(split.test))


def _in_turn(labels: Sequence[int], *, seed: int) -> list[int]:
    """Positions in an order whose every beginning has the classes in about the shares of the whole.

    The i-th of n pictures of a class stands at (i + u) / n, with one u in 0 … 1 for each class.
    """
    draw = generator(seed)
    place: dict[int, float] = {}
    for label in sorted(set(labels)):
        own = [index for index, known in enumerate(labels) if known == label]
        start = float(torch.rand((), generator=draw))
        for rank, index in enumerate(torch.randperm(len(own), generator=draw).tolist()):
            place[own[index]] = (rank + start) / len(own)
    return sorted(place, key=lambda index: place[index])
