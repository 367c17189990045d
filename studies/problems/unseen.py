"""Problems from images of a task vector's own data set that the vector was not trained on.

    pool = find_unseen(folder, info, engine.backbone.preprocessing)      # None where it cannot be known
    problem = pool.problem(PoolSettings(learn=18, max_classes=10, max_test=100), seed=0)

A task vector records how its folder was split in three: training, validation and test. The split is made
again here; the vector's checksum of the images and its counts prove that it is the same. A problem learns
from the validation images and a third of the test images, and is measured on the other two thirds.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.bank.vector import VectorInfo
from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder, LabelledFile
from atlas_engine.data.split import Split, group_near_duplicates, split_groups
from atlas_engine.data.support import Support
from atlas_engine.errors import ConfigError, SupportError
from atlas_engine.runtime import generator
from atlas_engine.training import TrainSettings
from studies.problems.draw import as_image, read_pixels
from studies.problems.few_shot import Problem, StudySettings, draw_problem

__all__ = ["PoolSettings", "UnseenPool", "VectorTask", "draw_unseen_problem", "find_unseen"]

LEAST = 6  # unseen images of a class, at least three of them to measure on


@dataclass(frozen=True, kw_only=True)
class PoolSettings(Settings):
    """How problems are drawn."""

    seeds: int = setting(3, help="problems drawn from each folder", low=1)
    learn: int = setting(18, help="most images of a class to learn and choose from", low=2)
    max_classes: int = setting(10, help="most classes of a task", low=2)
    max_test: int = setting(100, help="most images of a task to measure on", low=2)


@dataclass(frozen=True, eq=False)
class UnseenPool:
    """The images of a vector's folder; `validation` and `test` are positions it was not trained on."""

    name: str
    classes: tuple[str, ...]
    pixels: Tensor  # (N 3 S S) uint8
    labels: tuple[int, ...]
    groups: tuple[int, ...]  # images of one group show the same thing, and are never split
    validation: tuple[int, ...]
    test: tuple[int, ...]

    def problem(self, settings: PoolSettings, *, seed: int) -> Problem:
        """The problem of this seed, which draws the classes and the test images that are learned from."""
        kept = self._draw_classes(settings.max_classes, seed=seed)
        new_label = {label: index for index, label in enumerate(kept)}
        validation, test = (
            [row for row in part if self.labels[row] in new_label] for part in (self.validation, self.test)
        )
        # a third of the test part is learned from, without splitting a group
        labels, groups = [new_label[self.labels[row]] for row in test], [self.groups[row] for row in test]
        split = split_groups(labels, groups, val_share=0, test_share=2 / 3, seed=seed)
        learned = self._at_most([*validation, *(test[i] for i in split.train)], settings.learn, seed=seed)
        tests_per_class = max(1, settings.max_test // len(kept))
        measured = self._at_most([test[i] for i in split.test], tests_per_class, seed=seed)
        support = Support(
            tuple(as_image(f"{self.name} {row}", self.pixels[row]) for row in learned),
            tuple(new_label[self.labels[row]] for row in learned),
            tuple(self.classes[label] for label in kept),
        )
        truth = torch.tensor([new_label[self.labels[row]] for row in measured])
        pixels = self.pixels[measured]
        return Problem(self.name, seed, support, pixels, truth, _problem_digest(support, pixels, truth))

    def _draw_classes(self, most: int, *, seed: int) -> list[int]:
        """At most `most` classes with enough images, drawn by seed."""
        counts = Counter(self.labels[row] for row in (*self.validation, *self.test))
        test_groups = {label: set[int]() for label in counts}
        for row in self.test:
            test_groups[self.labels[row]].add(self.groups[row])
        able = [label for label in sorted(counts) if counts[label] >= LEAST and len(test_groups[label]) > 2]
        if len(able) < 2:
            raise SupportError(
                f"{self.name}: {len(able)} class(es) have {LEAST} images that its vector has not learned "
                "from, but a task needs 2. Give another folder."
            )
        order = torch.randperm(len(able), generator=generator(seed))[:most]
        return sorted(able[index] for index in order.tolist())

    def _at_most(self, rows: Sequence[int], most: int, *, seed: int) -> list[int]:
        """At most `most` of these images of each class, drawn by seed."""
        seen, kept = Counter[int](), []
        for index in torch.randperm(len(rows), generator=generator(seed)).tolist():
            seen[self.labels[rows[index]]] += 1
            if seen[self.labels[rows[index]]] <= most:
                kept.append(rows[index])
        return sorted(kept)


@dataclass(frozen=True, eq=False)
class VectorTask:
    """A folder, the task vector made from it, and the images that vector has not seen (None: not known)."""

    folder: ClassFolder
    vector: str
    pool: UnseenPool | None = None


def draw_unseen_problem(
    folder: ClassFolder, pool: UnseenPool | None, shape: Preprocessing, *, settings: PoolSettings, seed: int
) -> Problem:
    """A problem from the pool or, where there is none, from all images of the folder."""
    if pool is not None:
        return pool.problem(settings, seed=seed)
    draws = StudySettings(shots=settings.learn, max_classes=settings.max_classes, max_test=settings.max_test)
    return draw_problem(folder, shape, settings=draws, seed=seed)


def find_unseen(folder: ClassFolder, info: VectorInfo, shape: Preprocessing) -> UnseenPool | None:
    """The images the vector was not trained on; None where it does not say, or was made from other images."""
    recorded = info.provenance
    try:
        settings = TrainSettings.from_dict(json.loads(recorded["settings"]))
        counts = tuple(int(recorded[f"{part}_images"]) for part in ("train", "val", "test"))
    except (KeyError, ValueError, ConfigError):
        return None
    items = _training_items(folder, settings)
    pixels = read_pixels(items, shape)
    if _data_digest(items, pixels) != recorded.get("data_sha256"):
        return None
    labels = tuple(item.label for item in items)
    groups = tuple(
        group_near_duplicates(pixels, labels, tracks=[item.track for item in items], alike=settings.alike)
    )
    split = split_groups(
        labels, groups, val_share=settings.val_share, test_share=settings.test_share, seed=settings.seed
    )
    if _part_sizes(split, settings) != counts:
        raise SupportError(
            f"{folder.name}: its vector was made from {counts[0]} images and measured on {counts[2]}, but "
            f"dealt out again they are {len(split.train)} and {len(split.test)}. Give the --track-pattern "
            "that it was made with."
        )
    return UnseenPool(folder.name, folder.display_names, pixels, labels, groups, split.val, split.test)


def _training_items(folder: ClassFolder, settings: TrainSettings) -> tuple[LabelledFile, ...]:
    """The images that `train_vector` drew, in its order."""
    kept: list[LabelledFile] = []
    for label, count in enumerate(folder.counts):
        own = [item for item in folder.items if item.label == label]
        draw = generator(settings.seed * 1_000_003 + label)
        order = torch.randperm(count, generator=draw)[: settings.max_per_class]
        kept += [own[index] for index in sorted(order.tolist())]
    return tuple(kept)


def _part_sizes(split: Split, settings: TrainSettings) -> tuple[int, int, int]:
    return len(split.train), min(len(split.val), settings.max_val), len(split.test)


def _data_digest(items: Sequence[LabelledFile], pixels: Tensor) -> str:
    """As `train_vector` records it: names and pixels."""
    digest = hashlib.sha256()
    for item, image in zip(items, pixels, strict=True):
        digest.update(f"{item.name}\n".encode())
        digest.update(image.numpy().data)
    return digest.hexdigest()


def _problem_digest(support: Support, pixels: Tensor, labels: Tensor) -> str:
    digest = hashlib.sha256(repr((support.classes, support.labels, labels.tolist())).encode())
    digest.update(pixels.numpy().data)
    for image in support.images:
        digest.update(image.digest.encode())
    return digest.hexdigest()
