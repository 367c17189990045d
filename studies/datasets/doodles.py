"""Quick line drawings of things. Knows nothing of image files."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from atlas_engine.errors import SupportError
from studies.datasets.archives import read_members
from studies.datasets.example import SetExample
from studies.datasets.grids import small_pictures

__all__ = ["all_doodles", "doodles"]

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
    return _drawn(archive, "|".join(map(re.escape, " ".join(_WORDS.split()).split(", "))))


def all_doodles(archive: Path) -> Iterator[SetExample]:
    """Quick drawings of every class there is, black on white."""
    return _drawn(archive, r"[^/]+")


def _drawn(archive: Path, wanted: str) -> Iterator[SetExample]:
    """A gzipped file a class, a line a drawing, its ink from 0 to 1."""
    for name, packed in read_members(archive, rf"package/src/drawings/(?:{wanted})\.ndjson\.gz").items():
        label = Path(name).name.partition(".")[0]
        lines = _inflated(packed, name=name).splitlines()
        ink = small_pictures([json.loads(line) for line in lines], name=archive.name, highest=1)
        for index, drawing in enumerate(ink):
            yield SetExample(
                label, f"{label} {index}", np.rint(255 * (1 - _centred(drawing))).astype(np.uint8)
            )


def _centred(ink: NDArray[np.float32]) -> NDArray[np.float32]:
    """A drawing (H W) moved to the middle: in the package it lies in the upper left corner."""
    for axis in (0, 1):
        used = np.flatnonzero(ink.any(axis=1 - axis))
        if used.size:
            ink = np.roll(ink, (ink.shape[axis] - 1 - used[-1] - used[0]) // 2, axis=axis)
    return ink


def _inflated(packed: bytes, *, name: str) -> bytes:
    inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)  # 16: a gzip header
    try:
        data = inflater.decompress(packed, _MOST_CLASS_BYTES)
    except zlib.error:
        raise SupportError(f"{name}: is damaged. Get the package again.") from None
    if not inflater.eof:
        raise SupportError(f"{name}: is cut short, or unpacks to too much. Get the package again.")
    return data
