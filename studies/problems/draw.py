"""Draw classes and images of a folder by a seed, and read them as the tower's pixels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.data.folders import ClassFolder, LabelledFile, read_labelled_files
from atlas_engine.data.image import Image
from atlas_engine.data.preprocess import to_pixels
from atlas_engine.data.split import require_two_groups
from atlas_engine.runtime import generator

__all__ = [
    "ALIKE",
    "as_image",
    "draw_classes",
    "draw_images",
    "draw_per_class",
    "read_pixels",
    "with_classes",
]

ALIKE = 2.0  # of 255: images of a class that differ by less are near-duplicates


def draw_classes(folder: ClassFolder, most: int | None, *, seed: int = 0) -> ClassFolder:
    """The folder with at most `most` of its classes, drawn by seed; the folder itself if it has no more."""
    if most is None or most >= len(folder.classes):
        return folder
    drawn = sorted(torch.randperm(len(folder.classes), generator=generator(seed))[:most].tolist())
    return with_classes(folder, [folder.classes[label] for label in drawn])


def with_classes(folder: ClassFolder, classes: Sequence[str]) -> ClassFolder:
    """The folder with these of its classes alone, numbered in this order."""
    new_label = {folder.classes.index(name): label for label, name in enumerate(classes)}
    items = tuple(
        LabelledFile(item.name, new_label[item.label], item.source, item.track)
        for item in folder.items
        if item.label in new_label
    )
    return dataclasses.replace(folder, classes=tuple(classes), items=items)


def draw_images(folder: ClassFolder, most: int | None, *, seed: int = 0) -> ClassFolder:
    """The folder with at most `most` of its images, drawn by seed; the folder itself if it has no more."""
    if most is None or most >= len(folder.items):
        return folder
    drawn = sorted(torch.randperm(len(folder.items), generator=generator(seed))[:most].tolist())
    return dataclasses.replace(folder, items=tuple(folder.items[index] for index in drawn))


def draw_per_class(folder: ClassFolder, most: int, *, seed: int) -> tuple[LabelledFile, ...]:
    """At most `most` images of each class, class by class, each in an order drawn by seed."""
    draw = generator(seed)
    kept: list[LabelledFile] = []
    for label, (name, count) in enumerate(zip(folder.classes, folder.counts, strict=True)):
        require_two_groups(name, images=count)
        own = [item for item in folder.items if item.label == label]
        kept += [own[index] for index in torch.randperm(count, generator=draw)[:most].tolist()]
    return tuple(kept)


def read_pixels(items: Sequence[LabelledFile], shape: Preprocessing) -> Tensor:
    """The images as the tower's pixels, (N 3 S S) uint8; only one full-size image is in memory at a time."""
    pixels = []
    for item in items:
        ((_, image),), _ = read_labelled_files([item], isolated=False)
        pixels.append(to_pixels(image, shape.size, resize=shape.resize, interpolation=shape.interpolation))
    return torch.stack(pixels)


def as_image(name: str, pixels: Tensor) -> Image:
    """Pixels (3 S S) as an image of that name."""
    return Image(name, pixels.permute(1, 2, 0).numpy())
