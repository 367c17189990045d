"""Pictures of a vector's own data set that the vector was not made from, drawn as problems.

    pool = dealt_again(folder, info, engine.backbone.preprocessing)      # None where it cannot be told
    problem = pool.problem(PoolSettings(learn=18, max_classes=10, max_test=100), seed=0)

A vector says how its folder was cut in three (`training`): one part it learned from, one chose when to stop,
one measured. Dealt out again, the cut is the same, which its checksum and its counts prove. A problem learns
from the second part and some of the third, and is measured on the rest of the third. Knows nothing of
coefficients.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from studies.problems.draw import as_image, read_pixels
from torch import Tensor

from atlas_engine.bank.vector import VectorInfo
from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder, LabelledFile
from atlas_engine.data.split import Split, near_duplicate_groups, split_groups
from atlas_engine.data.support import Support
from atlas_engine.errors import ConfigError, SupportError
from atlas_engine.runtime import generator
from atlas_engine.training import TrainSettings
from studies.problems.few_shot import Problem, StudySettings, draw_problem

__all__ = ["PoolSettings", "UnseenPool", "draw_unseen_problem", "find_unseen"]

LEAST = 6  # unseen pictures of a class, at least three of them to measure on


@dataclass(frozen=True, kw_only=True)
class PoolSettings(Settings):
    """How problems are drawn."""

    seeds: int = setting(3, help="problems drawn from each folder", low=1)
    learn: int = setting(18, help="most pictures of a class to learn and choose from", low=2)
    max_classes: int = setting(10, help="most classes of a task", low=2)
    max_test: int = setting(100, help="most pictures of a task to measure on", low=2)


@dataclass(frozen=True, eq=False)
class UnseenPool:
    """What a vector has not learned from: `choosing` and `testing` are positions among the pictures."""

    name: str
    classes: tuple[str, ...]
    squares: Tensor  # (N 3 S S) uint8
    labels: tuple[int, ...]
    groups: tuple[int, ...]
    choosing: tuple[int, ...]
    testing: tuple[int, ...]

    def problem(self, settings: PoolSettings, *, seed: int) -> Problem:
        """The problem of this seed: classes, and which of the third part is learned from, are drawn by it."""
        kept = self._drawn(settings.max_classes, seed=seed)
        place = {label: index for index, label in enumerate(kept)}
        third = [row for row in self.testing if self.labels[row] in place]
        labels, groups = [place[self.labels[row]] for row in third], [self.groups[row] for row in third]
        cut = split_groups(labels, groups, val_share=0, test_share=2 / 3, seed=seed)
        second = [row for row in self.choosing if self.labels[row] in place]
        learned = self._some([*second, *(third[i] for i in cut.train)], settings.learn, seed=seed)
        most = max(1, settings.max_test // len(kept))
        test = self._some([third[i] for i in cut.test], most, seed=seed)
        support = Support(
            tuple(as_image(f"{self.name} {row}", self.squares[row]) for row in learned),
            tuple(place[self.labels[row]] for row in learned),
            tuple(self.classes[label] for label in kept),
        )
        truth = torch.tensor([place[self.labels[row]] for row in test])
        return _named(self.name, seed, support, self.squares[test], truth)

    def _drawn(self, most: int, *, seed: int) -> list[int]:
        """Classes with enough pictures, drawn by seed."""
        counts = Counter(self.labels[row] for row in (*self.choosing, *self.testing))
        things = {label: set[int]() for label in counts}
        for row in self.testing:
            things[self.labels[row]].add(self.groups[row])
        able = [label for label in sorted(counts) if counts[label] >= LEAST and len(things[label]) > 2]
        if len(able) < 2:
            raise SupportError(
                f"{self.name}: {len(able)} class(es) have {LEAST} images that its vector has not learned "
                "from, but a task needs 2. Give another folder."
            )
        order = torch.randperm(len(able), generator=generator(seed))[:most]
        return sorted(able[index] for index in order.tolist())

    def _some(self, rows: Sequence[int], most: int, *, seed: int) -> list[int]:
        """At most so many of each class, drawn by seed."""
        turns, kept = Counter[int](), []
        for index in torch.randperm(len(rows), generator=generator(seed)).tolist():
            turns[self.labels[rows[index]]] += 1
            if turns[self.labels[rows[index]]] <= most:
                kept.append(rows[index])
        return sorted(kept)


def draw_unseen_problem(
    folder: ClassFolder, pool: UnseenPool | None, shape: Preprocessing, *, settings: PoolSettings, seed: int
) -> Problem:
    """A problem from the pool or, where there is none, from all pictures of the folder."""
    if pool is not None:
        return pool.problem(settings, seed=seed)
    draws = StudySettings(shots=settings.learn, max_classes=settings.max_classes, max_test=settings.max_test)
    return draw_problem(folder, shape, settings=draws, seed=seed)


def find_unseen(folder: ClassFolder, info: VectorInfo, shape: Preprocessing) -> UnseenPool | None:
    """What the vector has not learned from; None where it does not say, or was made from other pictures."""
    made = info.provenance
    try:
        settings = TrainSettings.from_dict(json.loads(made["settings"]))
        counts = tuple(int(made[f"{part}_images"]) for part in ("train", "val", "test"))
    except (KeyError, ValueError, ConfigError):
        return None
    items = _drawn(folder, settings)
    squares = read_pixels(items, shape)
    if _digest(items, squares) != made.get("data_sha256"):
        return None
    labels = tuple(item.label for item in items)
    groups = tuple(
        near_duplicate_groups(squares, labels, tracks=[item.track for item in items], alike=settings.alike)
    )
    split = split_groups(
        labels, groups, val_share=settings.val_share, test_share=settings.test_share, seed=settings.seed
    )
    if _counts(split, settings) != counts:
        raise SupportError(
            f"{folder.name}: its vector was made from {counts[0]} images and measured on {counts[2]}, but "
            f"dealt out again they are {len(split.train)} and {len(split.test)}. Give the --track-pattern "
            "that it was made with."
        )
    return UnseenPool(folder.name, folder.pretty, squares, labels, groups, split.val, split.test)


def _drawn(folder: ClassFolder, settings: TrainSettings) -> tuple[LabelledFile, ...]:
    """The pictures that the training drew, in its order."""
    kept: list[LabelledFile] = []
    for label, count in enumerate(folder.counts):
        own = [item for item in folder.items if item.label == label]
        draw = generator(settings.seed * 1_000_003 + label)
        order = torch.randperm(count, generator=draw)[: settings.max_per_class]
        kept += [own[index] for index in sorted(order.tolist())]
    return tuple(kept)


def _counts(split: Split, settings: TrainSettings) -> tuple[int, int, int]:
    return len(split.train), min(len(split.val), settings.max_val), len(split.test)


def _digest(items: Sequence[LabelledFile], squares: Tensor) -> str:
    digest = hashlib.sha256()
    for item, square in zip(items, squares, strict=True):
        digest.update(f"{item.name}\n".encode())
        digest.update(square.numpy().data)
    return digest.hexdigest()


def _named(name: str, seed: int, support: Support, squares: Tensor, labels: Tensor) -> Problem:
    digest = hashlib.sha256(repr((support.classes, support.labels, labels.tolist())).encode())
    digest.update(squares.numpy().data)
    for picture in support.pictures:
        digest.update(picture.digest.encode())
    return Problem(name, seed, support, squares, labels, digest.hexdigest())
