"""A few-shot problem drawn from a folder of classes, and how well an image tower solves it.

    problem = draw_problem(folder, engine.backbone.preprocessing, settings=StudySettings(), seed=0)
    accuracy(engine, engine.backbone.visual, problem)          # zero-shot, on the images held out

The seed decides the classes, the shots and the test images. No test image shares a track with a shot, or is a
near-duplicate of one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine.adapt.arithmetic.recipes import task_columns
from atlas_engine.adapt.settings import FewShotConfig
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.data.split import group_near_duplicates, require_two_groups
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from atlas_engine.errors import SupportError
from atlas_engine.recipe import Recipe
from studies.problems.draw import ALIKE, as_image, draw_classes, draw_per_class, read_pixels

__all__ = [
    "Problem",
    "StudySettings",
    "accuracy",
    "draw_problem",
    "recipe_accuracy",
    "share_correct",
    "shot_pixels",
    "unit_features",
    "with_shots",
]

CHUNK = 64
SPARE = 2  # times the shots: images of a class that are read for them, as some may be near-duplicates


@dataclass(frozen=True, kw_only=True)
class StudySettings(Settings):
    """The problems of a study, and how long to learn from each: short, since a study has hundreds."""

    shots: int = setting(4, help="images of a class to learn from", low=1)
    seeds: int = setting(3, help="problems drawn from each folder", low=1)
    max_classes: int = setting(10, help="most classes of a problem", low=2)
    max_test: int = setting(200, help="most images to measure on", low=2)
    steps: int = setting(10, help="optimiser steps", low=0)
    batch: int = setting(20, help="images a step", low=1)
    lr: float = setting(0.1, help="learning rate of the first step", low=0.0)
    share: float | None = setting(
        None,
        help="share of the tower that task vectors may move",
        low=0.0,
        high=1.0,
        unset="the product's own",
    )

    def loop(self) -> FewShotConfig:
        """How coefficients are learned."""
        return FewShotConfig(steps=self.steps, batch=self.batch, lr=self.lr, share=self.share)


@dataclass(frozen=True, eq=False)
class Problem:
    """Shots to learn from and other images to measure on, all of them at the tower's size."""

    target: str  # the folder's name
    seed: int
    support: Support
    pixels: Tensor  # (N 3 S S) uint8, to measure on
    labels: Tensor  # (N)
    digest: str  # of all pixels, labels and class names
    validation: Support | None = None  # more images of the same classes, to choose by

    def __repr__(self) -> str:
        return f"Problem({self.target}, seed {self.seed}, {self.support!r}, {len(self.labels)} to measure on)"


def draw_problem(
    folder: ClassFolder, shape: Preprocessing, *, settings: StudySettings, seed: int, validation: int = 0
) -> Problem:
    """The problem of this seed, with as many shots of each class as asked for and as many test images.

    `validation` images of each class, which are neither, are there to choose by.
    """
    drawn = draw_classes(folder, settings.max_classes, seed=seed)
    tests_per_class = max(1, settings.max_test // len(drawn.classes))
    items = draw_per_class(drawn, SPARE * (settings.shots + validation) + tests_per_class, seed=seed)
    labels = tuple(item.label for item in items)
    pixels = read_pixels(items, shape)
    groups = group_near_duplicates(pixels, labels, tracks=[item.track for item in items], alike=ALIKE)
    shots: list[int] = []
    chosen_by: list[int] = []
    test: list[int] = []
    for label, name in enumerate(drawn.classes):
        own = [index for index, known in enumerate(labels) if known == label]
        learned, rest = _take_groups(own, groups, settings.shots, name=name)
        validated, held_out = _take_groups(rest, groups, validation, name=name) if validation else ([], rest)
        shots += learned
        chosen_by += validated
        test += held_out[:tests_per_class]

    def support(rows: Sequence[int]) -> Support:
        images = tuple(as_image(items[index].name, pixels[index]) for index in rows)
        return Support(images, tuple(labels[index] for index in rows), drawn.display_names)

    problem = Problem(
        target=folder.name,
        seed=seed,
        support=support(shots),
        pixels=pixels[test],
        labels=torch.tensor([labels[index] for index in test]),
        digest="",
        validation=support(chosen_by) if chosen_by else None,
    )
    return replace(problem, digest=_digest(problem))


def with_shots(problem: Problem, shots: int) -> Problem:
    """The same classes and test images, with the first `shots` shots of each class to learn from."""
    support, seen = problem.support, Counter[int]()
    kept = []
    for position, label in enumerate(support.labels):
        seen[label] += 1
        if seen[label] <= shots:
            kept.append(position)
    fewer = Support(
        tuple(support.images[position] for position in kept),
        tuple(support.labels[position] for position in kept),
        support.classes,
    )
    smaller = replace(problem, support=fewer)
    return replace(smaller, digest=_digest(smaller))


def shot_pixels(engine: Atlas, problem: Problem) -> Tensor:
    """The shots as the tower's pixels, (N 3 S S) uint8."""
    return engine.pixels(problem.support.images)


# ---- measuring


@torch.inference_mode()
def unit_features(engine: Atlas, tower: nn.Module, pixels: Tensor) -> Tensor:
    """Features (N D) of length 1 of pixels (N 3 S S)."""
    parts = [
        tower(engine.backbone.as_input(some.float() / 255)).float() for some in torch.split(pixels, CHUNK)
    ]
    return F.normalize(torch.cat(parts), dim=-1)


def accuracy(engine: Atlas, tower: nn.Module, problem: Problem) -> float:
    """The tower's accuracy on the test images, under the text head of the problem's classes."""
    head = engine.head(problem.support.classes)
    return share_correct(
        unit_features(engine, tower, problem.pixels) @ head.T, problem.labels
    )  # (N D) @ (D C)


def recipe_accuracy(
    engine: Atlas, recipe: Recipe, problem: Problem, task: str, *, bank: TaskVectorBank
) -> float:
    """The accuracy on the test images of a recipe for several tasks, among the classes of one of them."""
    logits = engine.logits(recipe, problem.pixels, bank=bank)[:, task_columns(recipe, task)]
    return share_correct(logits, problem.labels)


def share_correct(logits: Tensor, labels: Tensor) -> float:
    """The share of images whose largest logit (N C) is their class (N)."""
    return int((logits.argmax(dim=1).cpu() == labels).sum()) / len(labels)


def _take_groups(
    rows: Sequence[int], groups: Sequence[int], count: int, *, name: str
) -> tuple[list[int], list[int]]:
    """`count` of these rows, and those of the rest that share no group with them."""
    taken, rest = _split_groups([groups[row] for row in rows], count, name=name)
    return [rows[position] for position in taken], [rows[position] for position in rest]


def _split_groups(groups: Sequence[int], shots: int, *, name: str) -> tuple[list[int], list[int]]:
    """Positions of the shots and of the rest: a shot from each group in turn, and no group on both sides.

    >>> _split_groups([7, 7, 8, 9, 9, 7], 2, name="cat")
    ([0, 2], [3, 4])
    """
    by_group: dict[int, list[int]] = {}
    for position, group in enumerate(groups):
        by_group.setdefault(group, []).append(position)
    require_two_groups(name, images=len(groups), groups=len(by_group))
    members = list(by_group.values())
    used = min(shots, len(members) - 1)
    in_turn = chain.from_iterable(zip_longest(*members[:used]))
    learned = [position for position in in_turn if position is not None][:shots]
    if len(learned) < shots:
        raise SupportError(
            f"class '{name}' has {len(learned)} image(s) to learn from beside those held out, but "
            f"shots={shots}. Add {shots - len(learned)} of something else, or pass a lower number of shots."
        )
    return learned, list(chain.from_iterable(members[used:]))


def _digest(problem: Problem) -> str:
    digest = hashlib.sha256(repr((problem.support.classes, problem.support.labels)).encode())
    chosen_by = () if problem.validation is None else problem.validation.images
    for image in (*problem.support.images, *chosen_by):
        digest.update(image.digest.encode())
    digest.update(problem.pixels.numpy().data)
    digest.update(repr(problem.labels.tolist()).encode())
    return digest.hexdigest()
