"""Class folders made of packages: `OUT/NAME/class name/image.png`.

    for progress in make_set(SETS["mnist"], Path("sets"), packages=Path("packages")): ...

A set is made in a hidden folder that takes its name when it is whole, so a folder that has the name is
finished. Inside it `.origin.json` says what it was made of; a set of another making is made anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from atlas_engine.config import Settings, setting
from atlas_engine.data.decode import png_bytes, read_image
from atlas_engine.data.image import Image, ImageLimits
from atlas_engine.errors import ImageError, SupportError
from studies.datasets.packages import fetch
from studies.datasets.readers import SetExample
from studies.datasets.table import ImageSet

__all__ = ["TRACK_PATTERN", "ImageSetSettings", "SetProgress", "cap_classes", "make_set", "origin"]

TRACK_PATTERN = r"^(\d+)_"  # of `read_folder`: `00012_001.png` belongs to track `00012` of its class

MOST_NAMED_PIXELS = 9_000_000  # of an image of a named set: a larger one is a poster, and slow to read

_RECIPE = 1  # to be raised when the same package gives other images or classes than before
_ORIGIN = ".origin.json"


@dataclass(frozen=True, kw_only=True)
class ImageSetSettings(Settings):
    """How much is taken of each set."""

    per_class: int = setting(150, help="most images of a class", low=2)
    least: int = setting(1200, help="a set of few classes takes more of each, up to this many in all", low=0)
    side: int = setting(128, help="larger images are shrunk to this short side, in pixels", low=16, high=448)


DEFAULT_SETTINGS = ImageSetSettings()


@dataclass(frozen=True)
class SetProgress:
    """How far the making of a set has come."""

    doing: str
    done: int = 0
    of: int = 0


def make_set(
    image_set: ImageSet, out: Path, *, packages: Path, settings: ImageSetSettings = DEFAULT_SETTINGS
) -> Iterator[SetProgress]:
    """Fetch, read and write one set; nothing is done where it is there already."""
    target = out / image_set.name
    if _is_made(target, _making(image_set, settings)):
        return
    try:
        yield SetProgress("fetching")
        files = [fetch(package, packages) for package in image_set.packages]
        yield SetProgress("unpacking")
        by_class = _read_examples(image_set, files, settings)
        yield from _write_set(image_set, by_class, target, settings)
    except OSError as error:
        raise SupportError(
            f"{target}: cannot be written ({error.strerror}). Make room, or choose another folder."
        ) from error


def origin(folder: Path) -> dict[str, Any]:
    """What a set was made of, and its count of images a class."""
    found: dict[str, Any] = json.loads((folder / _ORIGIN).read_text(encoding="utf-8"))
    return found


def cap_classes(examples: Iterable[SetExample], *, per_class: int, least: int) -> dict[str, list[SetExample]]:
    """The examples by class, at most `per_class` of each, spread evenly over what there is.

    Where that would leave a set of few classes with fewer than `least` images, a class may have more: of 600
    in each of 2 classes, `per_class=150, least=800` takes 400.
    """
    by_class: dict[str, list[SetExample]] = {}
    for example in examples:
        by_class.setdefault(example.label, []).append(example)
    most = max(per_class, -(-least // max(len(by_class), 1)))
    return {label: _spread(members, most) for label, members in by_class.items()}


def _spread(members: list[SetExample], most: int) -> list[SetExample]:
    """At most `most` members, evenly spaced."""
    if len(members) <= most:
        return members
    return [members[index * len(members) // most] for index in range(most)]


def _making(image_set: ImageSet, settings: ImageSetSettings) -> dict[str, Any]:
    """All that decides what is written: two runs that agree in it write the same."""
    packages = [asdict(package) for package in image_set.packages]
    return {"packages": packages, "recipe": _RECIPE, **asdict(settings)}


def _is_made(target: Path, making: dict[str, Any]) -> bool:
    if not target.exists():
        return False
    try:
        found = origin(target)
    except (OSError, ValueError):
        raise SupportError(
            f"{target}: is there, but was not made by this command. Move it away, or choose another folder."
        ) from None
    return making.items() <= found.items()


def _read_examples(
    image_set: ImageSet, files: list[Path], settings: ImageSetSettings
) -> dict[str, list[SetExample]]:
    try:
        return cap_classes(image_set.read(*files), per_class=settings.per_class, least=settings.least)
    # Tables and numbers from a stranger: whatever is missing or of another kind ends here.
    except (ValueError, KeyError, TypeError, IndexError) as error:
        names = ", ".join(file.name for file in files)
        raise SupportError(
            f"{names}: has not the layout that '{image_set.name}' is known to have "
            f"({type(error).__name__}: {error}). Get the package again."
        ) from error


def _write_set(
    image_set: ImageSet, by_class: dict[str, list[SetExample]], target: Path, settings: ImageSetSettings
) -> Iterator[SetProgress]:
    """Write all classes into a hidden folder, then give it its name."""
    total = sum(map(len, by_class.values()))
    yield SetProgress("writing", 0, total)
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # what a run that was stopped has left
    counts = dict.fromkeys(sorted(by_class), 0)
    read = partial(_READ[image_set.role], side=settings.side)
    try:
        for label in counts:
            for wrote in _write_class(part / label, by_class[label], read):
                counts[label] += wrote
                yield SetProgress("writing", sum(counts.values()), total)
        about = {"set": image_set.name, "what": image_set.what, "licence": image_set.licence}
        classes = {label: count for label, count in counts.items() if count}
        found = {"left_out": total - sum(counts.values()), "classes": classes}
        record = json.dumps(about | _making(image_set, settings) | found, indent=2)
        (part / _ORIGIN).write_text(record + "\n", encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_class(
    folder: Path, examples: list[SetExample], read: Callable[[SetExample], Image]
) -> Iterator[bool]:
    """Whether each example was written; an image that the decoder refuses is left out."""
    tracks = {track: number for number, track in enumerate(dict.fromkeys(e.track for e in examples))}
    for index, example in enumerate(examples):
        try:
            image = read(example)
        except ImageError:
            yield False
            continue
        folder.mkdir(parents=True, exist_ok=True)  # here, so that a class without images has no folder
        (folder / f"{tracks[example.track]:05d}_{index:05d}.png").write_bytes(png_bytes(image))
        yield True


def _as_it_is(example: SetExample, *, side: int) -> Image:
    return read_image(example.image, name=example.track, limits=ImageLimits(keep_side=side))


def _on_a_square(example: SetExample, *, side: int) -> Image:
    """The whole image in the middle of a white square, since a reader may crop one that is not square."""
    limits = ImageLimits(keep_side=side, max_pixels=MOST_NAMED_PIXELS)
    pixels = read_image(example.image, name=example.track, limits=limits).pixels
    height, width = pixels.shape[:2]
    long = max(height, width)
    top, left = (long - height) // 2, (long - width) // 2
    square = np.full((long, long, 3), 255, np.uint8)
    square[top : top + height, left : left + width] = pixels
    return read_image(square, name=example.track, limits=ImageLimits(keep_side=side))


_READ = {"task_vector": _as_it_is, "named": _on_a_square}
