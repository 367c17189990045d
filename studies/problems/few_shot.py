"""A few-shot problem drawn from a folder of classes, and how well an image tower solves it.

    problem = draw_problem(folder, engine.backbone.preprocessing, settings=StudySettings(), seed=0)
    accuracy(engine, engine.backbone.visual, problem)          # zero-shot, on pictures held out

The seed decides the classes, the shots and the test pictures. No test picture shares a track with a shot, or
looks like one. Knows nothing of banks.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

import torch
from studies.problems.draw import draw_classes
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder, LabelledFile, read_labelled_files
from atlas_engine.data.image import Image
from atlas_engine.data.preprocess import to_pixels
from atlas_engine.data.split import near_duplicate_groups, require_two_groups
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from atlas_engine.errors import SupportError
from atlas_engine.runtime import generator

__all__ = [
    "ALIKE",
    "Problem",
    "StudySettings",
    "accuracy",
    "as_image",
    "draw_per_class",
    "draw_problem",
    "read_pixels",
    "share_correct",
    "shot_pixels",
    "unit_features",
    "with_shots",
]

CHUNK = 64
ALIKE = 2.0  # of 255: pictures of a class that differ by less are the same to us
SPARE = 2  # times the shots: pictures to read of a class, as some may turn out to be alike


@dataclass(frozen=True, kw_only=True)
class StudySettings(Settings):
    """The problems of a study, and how long to learn from each: short, since a study has hundreds."""

    shots: int = setting(4, help="pictures of a class to learn from", low=1)
    seeds: int = setting(3, help="problems drawn from each folder", low=1)
    max_classes: int = setting(10, help="most classes of a problem", low=2)
    max_test: int = setting(200, help="most pictures to measure on", low=2)
    steps: int = setting(10, help="optimiser steps", low=0)
    batch: int = setting(20, help="pictures a step", low=1)
    lr: float = setting(0.1, help="learning rate of the first step", low=0.0)

    def loop(self) -> FewShotConfig:
        """How coefficients are learned."""
        return FewShotConfig(steps=self.steps, batch=self.batch, lr=self.lr)


@dataclass(frozen=True, eq=False)
class Problem:
    """Pictures to learn from and others to measure on, all of them squares as the tower takes them."""

    target: str
    seed: int
    support: Support
    squares: Tensor  # (N 3 S S) uint8, to measure on
    labels: Tensor  # (N)
    digest: str
    """What stands for the whole problem: pixels, labels and class names."""

    def __repr__(self) -> str:
        return f"Problem({self.target}, seed {self.seed}, {self.support!r}, {len(self.labels)} to measure on)"


def draw_problem(folder: ClassFolder, shape: Preprocessing, *, settings: StudySettings, seed: int) -> Problem:
    """The problem of this seed: as many shots a class as asked for, and as many test pictures of each."""
    drawn = draw_classes(folder, settings.max_classes, seed=seed)
    share = max(1, settings.max_test // len(drawn.classes))
    items = draw_per_class(drawn, SPARE * settings.shots + share, seed=seed)
    labels = tuple(item.label for item in items)
    squares = read_pixels(items, shape)
    groups = near_duplicate_groups(squares, labels, tracks=[item.track for item in items], alike=ALIKE)
    shots: list[int] = []
    test: list[int] = []
    for label, name in enumerate(drawn.classes):
        own = [index for index, known in enumerate(labels) if known == label]
        learned, held_out = _dealt([groups[index] for index in own], settings.shots, name=name)
        shots += [own[place] for place in learned]
        test += [own[place] for place in held_out[:share]]
    learned_from = tuple(as_image(items[index].name, squares[index]) for index in shots)
    support = Support(learned_from, tuple(labels[index] for index in shots), drawn.pretty)
    problem = Problem(folder.name, seed, support, squares[test], torch.tensor([labels[i] for i in test]), "")
    return replace(problem, digest=_digest(problem))


def with_shots(problem: Problem, shots: int) -> Problem:
    """The same classes and test pictures, with the first so many shots of each class to learn from."""
    support, turns = problem.support, Counter[int]()
    kept = []
    for place, label in enumerate(support.labels):
        turns[label] += 1
        if turns[label] <= shots:
            kept.append(place)
    pictures = tuple(support.pictures[place] for place in kept)
    labels = tuple(support.labels[place] for place in kept)
    fewer = replace(problem, support=Support(pictures, labels, support.classes))
    return replace(fewer, digest=_digest(fewer))


def shot_pixels(engine: Atlas, problem: Problem) -> Tensor:
    """The shots as the tower's squares, (N 3 S S) uint8."""
    shape = engine.backbone.preprocessing
    return problem.support.squares(shape.size, resize=shape.resize, interpolation=shape.interpolation)


@torch.inference_mode()
def unit_features(engine: Atlas, tower: nn.Module, squares: Tensor) -> Tensor:
    """Features (N D) of length 1, for squares (N 3 S S)."""
    parts = [
        tower(engine.backbone.as_input(some.float() / 255)).float() for some in torch.split(squares, CHUNK)
    ]
    return F.normalize(torch.cat(parts), dim=-1)


def accuracy(engine: Atlas, tower: nn.Module, problem: Problem) -> float:
    """The share of the test pictures that the tower tells right, under the head of the problem's classes."""
    head = engine.head(problem.support.classes)
    return share_correct(unit_features(engine, tower, problem.squares) @ head.T, problem.labels)  # (N D) @ (D C)


def share_correct(logits: Tensor, labels: Tensor) -> float:
    """The share of pictures whose largest logit (N C) is their class (N)."""
    return int((logits.argmax(dim=1).cpu() == labels).sum()) / len(labels)


# ---- drawing


def read_pixels(items: Sequence[LabelledFile], shape: Preprocessing) -> Tensor:
    """The pictures as the tower's squares, (N 3 S S) uint8; no two lie in memory as they are in the files."""
    squares = []
    for item in items:
        ((_, picture),), _ = read_labelled_files([item], isolated=False)
        squares.append(to_pixels(picture, shape.size, resize=shape.resize, interpolation=shape.interpolation))
    return torch.stack(squares)


def as_image(name: str, square: Tensor) -> Image:
    """A square (3 S S) as a picture of that name."""
    return Image(name, square.permute(1, 2, 0).numpy())


def draw_per_class(folder: ClassFolder, most: int, *, seed: int) -> tuple[LabelledFile, ...]:
    """At most so many pictures of each class, in an order drawn by seed."""
    draw = generator(seed)
    kept: list[LabelledFile] = []
    for label, (name, count) in enumerate(zip(folder.classes, folder.counts, strict=True)):
        require_two_groups(name, pictures=count)
        own = [item for item in folder.items if item.label == label]
        kept += [own[index] for index in torch.randperm(count, generator=draw)[:most].tolist()]
    return tuple(kept)


def _dealt(groups: Sequence[int], shots: int, *, name: str) -> tuple[list[int], list[int]]:
    """Places of the shots and of the rest: a shot from each group in turn, and no group on both sides.

    >>> _dealt([7, 7, 8, 9, 9, 7], 2, name="cat")
    ([0, 2], [3, 4])
    """
    by_group: dict[int, list[int]] = {}
    for place, group in enumerate(groups):
        by_group.setdefault(group, []).append(place)
    require_two_groups(name, pictures=len(groups), things=len(by_group))
    things = list(by_group.values())
    used = min(shots, len(things) - 1)
    in_turn = chain.from_iterable(zip_longest(*things[:used]))
    learned = [place for place in in_turn if place is not None][:shots]
    if len(learned) < shots:
        raise SupportError(
            f"class '{name}' has {len(learned)} image(s) to learn from beside those held out, but "
            f"shots={shots}. Add {shots - len(learned)} of something else, or pass a lower number of shots."
        )
    return learned, list(chain.from_iterable(things[used:]))


def _digest(problem: Problem) -> str:
    digest = hashlib.sha256(repr((problem.support.classes, problem.support.labels)).encode())
    for picture in problem.support.pictures:
        digest.update(picture.digest.encode())
    digest.update(problem.squares.numpy().data)
    digest.update(repr(problem.labels.tolist()).encode())
    return digest.hexdigest()
