"""Photo rolls drawn from a folder of classes, clean or damaged, with the labels kept apart from them.

    draw = draw_rolls(folder, engine.backbone.preprocessing, most=100, seed=0)
    places = draw.places("few", 20)               # of the first twenty pictures of a third of the classes
    draw.damaged(Corruption.parse("fog:3")).roll(places)    # what a learner sees: squares and class names
    draw.labels[places]                                     # what only the score sees

A seed draws the classes, an order of their pictures, and which few classes a roll of few has. Larger rolls
begin with smaller ones, and a roll of few classes has its pictures in the same order, so all are compared on
the same pictures. Nothing but which classes are the few ones depends on a label. Knows nothing of methods.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from studies.problems.draw import as_image, draw_classes, read_pixels
from torch import Tensor

from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.data.folders import ClassFolder
from atlas_engine.data.image import Image
from atlas_engine.runtime import generator
from studies.corruptions import Corruption

__all__ = ["EVERY", "FEW", "PRESENT", "DrawnImages", "DrawnRoll", "draw_rolls"]

EVERY, FEW = "all", "few"
PRESENT = (EVERY, FEW)
"""Which of the classes that are asked for are among the pictures: any of them, or about a third."""

FEW_SHARE = 1 / 3


@dataclass(frozen=True, eq=False)
class DrawnRoll:
    """All that a learner may see: pictures as the tower's squares, and the classes that are asked for."""

    classes: tuple[str, ...]
    squares: Tensor  # (N 3 S S) uint8

    @cached_property
    def pictures(self) -> tuple[Image, ...]:
        """The squares as pictures. They are numbered: a file's own name would tell its class."""
        return tuple(
            as_image(f"picture {number}", square) for number, square in enumerate(self.squares, start=1)
        )

    def __repr__(self) -> str:
        return f"Roll({len(self.squares)} pictures, {len(self.classes)} classes)"


@dataclass(frozen=True, eq=False, repr=False)
class DrawnImages:
    """The pictures of one seed, and where among them the rolls are."""

    seed: int
    classes: tuple[str, ...]
    squares: Tensor  # (N 3 S S) uint8
    labels: Tensor  # (N), for scores alone
    orders: Mapping[str, tuple[int, ...]]  # by who is present: places, the first of a roll first

    def places(self, present: str, size: int | None = None) -> list[int]:
        """Where the pictures of a roll are; fewer than `size` where there are no more."""
        return list(self.orders[present][:size])

    def roll(self, places: Sequence[int]) -> DrawnRoll:
        """What may be seen of these pictures."""
        return DrawnRoll(self.classes, self.squares[list(places)])

    def damaged(self, corruption: Corruption) -> DrawnImages:
        """The same rolls, every picture damaged; each in its own way, and the same in all rolls."""
        return replace(self, squares=corruption(self.squares, seed=self.seed))

    def digest(self, places: Sequence[int]) -> str:
        """What stands for a roll and its labels: pixels, labels and class names."""
        kept = list(places)
        digest = hashlib.sha256(repr((self.classes, self.labels[kept].tolist())).encode())
        digest.update(self.squares[kept].numpy().data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"Draw(seed {self.seed}, {len(self.labels)} pictures, {len(self.classes)} classes)"


def draw_rolls(
    folder: ClassFolder,
    shape: Preprocessing,
    *,
    most: int | None = None,
    max_classes: int | None = None,
    present: Sequence[str] = PRESENT,
    seed: int,
) -> DrawnImages:
    """Every roll of this seed, of at most `most` pictures; only pictures of these are read, each once."""
    drawn = draw_classes(folder, max_classes, seed=seed)
    orders = {name: order[:most] for name, order in _orders(drawn, seed=seed).items() if name in present}
    items = sorted(set().union(*orders.values()))
    place = {item: index for index, item in enumerate(items)}
    return DrawnImages(
        seed,
        drawn.pretty,
        read_pixels([drawn.items[item] for item in items], shape),
        torch.tensor([drawn.items[item].label for item in items]),
        {name: tuple(place[item] for item in order) for name, order in orders.items()},
    )


def _orders(folder: ClassFolder, *, seed: int) -> dict[str, list[int]]:
    draw, classes = generator(seed), len(folder.classes)
    order = torch.randperm(len(folder.items), generator=draw).tolist()
    some = max(1, round(FEW_SHARE * classes))
    few = set(torch.randperm(classes, generator=draw)[:some].tolist())
    return {EVERY: order, FEW: [item for item in order if folder.items[item].label in few]}
