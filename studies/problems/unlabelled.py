"""Problems without labels: images of a folder of classes, clean or corrupted; labels are kept apart.

    drawn = draw_unlabelled(folder, engine.backbone.preprocessing, max_images=100, seed=0)
    positions = drawn.positions("few", 20)          # the first twenty images of a third of the classes
    drawn.corrupted(Corruption.parse("fog:3")).problem(positions)  # what a method sees: pixels and classes
    drawn.labels[positions]                                         # what the score alone sees

A seed draws the classes, an order of their images, and which few classes a problem of few classes has. Larger
problems begin with smaller ones, and a problem of few classes keeps the order, so all are compared on the
same images. Nothing but the choice of the few classes depends on a label.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.data.folders import ClassFolder
from atlas_engine.data.image import Image
from atlas_engine.runtime import generator
from studies.corruptions import Corruption
from studies.problems.draw import as_image, draw_classes, read_pixels

__all__ = ["EVERY", "FEW", "PRESENT", "UnlabelledPool", "UnlabelledProblem", "draw_unlabelled"]

EVERY, FEW = "all", "few"
PRESENT = (EVERY, FEW)
"""Which of the classes that are asked for may be among the images: any of them, or about a third."""

FEW_SHARE = 1 / 3


@dataclass(frozen=True, eq=False)
class UnlabelledProblem:
    """All that a method may see: images as the tower's pixels, and the classes that are asked for."""

    classes: tuple[str, ...]
    pixels: Tensor  # (N 3 S S) uint8

    @cached_property
    def images(self) -> tuple[Image, ...]:
        """The pixels as images. They are numbered: a file's own name would give away its class."""
        return tuple(as_image(f"image {n}", pixels) for n, pixels in enumerate(self.pixels, start=1))

    def __repr__(self) -> str:
        return f"UnlabelledProblem({len(self.pixels)} images, {len(self.classes)} classes)"


@dataclass(frozen=True, eq=False, repr=False)
class UnlabelledPool:
    """The images of one seed, and which of them make up its problems."""

    seed: int
    classes: tuple[str, ...]
    pixels: Tensor  # (N 3 S S) uint8
    labels: Tensor  # (N), for scores alone
    orders: Mapping[str, tuple[int, ...]]  # EVERY or FEW to positions, the first of a problem first

    def positions(self, present: str, size: int | None = None) -> list[int]:
        """The positions of a problem's images; fewer than `size` where there are no more."""
        return list(self.orders[present][:size])

    def problem(self, positions: Sequence[int]) -> UnlabelledProblem:
        """What may be seen of these images."""
        return UnlabelledProblem(self.classes, self.pixels[list(positions)])

    def corrupted(self, corruption: Corruption) -> UnlabelledPool:
        """The same with every image corrupted, each in its own way and alike in all problems."""
        return replace(self, pixels=corruption(self.pixels, seed=self.seed))

    def digest(self, positions: Sequence[int]) -> str:
        """A hash of a problem's pixels, labels and class names."""
        kept = list(positions)
        digest = hashlib.sha256(repr((self.classes, self.labels[kept].tolist())).encode())
        digest.update(self.pixels[kept].numpy().data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"UnlabelledPool(seed {self.seed}, {len(self.labels)} images, {len(self.classes)} classes)"


def draw_unlabelled(
    folder: ClassFolder,
    shape: Preprocessing,
    *,
    max_images: int | None = None,
    max_classes: int | None = None,
    present: Sequence[str] = PRESENT,
    seed: int,
) -> UnlabelledPool:
    """The problems of this seed, of at most `max_images` images; no other image is read, and none twice."""
    drawn = draw_classes(folder, max_classes, seed=seed)
    orders = {
        name: order[:max_images] for name, order in _orders(drawn, seed=seed).items() if name in present
    }
    items = sorted(set().union(*orders.values()))
    position = {item: index for index, item in enumerate(items)}
    return UnlabelledPool(
        seed,
        drawn.display_names,
        read_pixels([drawn.items[item] for item in items], shape),
        torch.tensor([drawn.items[item].label for item in items]),
        {name: tuple(position[item] for item in order) for name, order in orders.items()},
    )


def _orders(folder: ClassFolder, *, seed: int) -> dict[str, list[int]]:
    """A random order of all items, and the same order with a third of the classes alone."""
    draw, classes = generator(seed), len(folder.classes)
    order = torch.randperm(len(folder.items), generator=draw).tolist()
    count = max(1, round(FEW_SHARE * classes))
    few = set(torch.randperm(classes, generator=draw)[:count].tolist())
    return {EVERY: order, FEW: [item for item in order if folder.items[item].label in few]}
