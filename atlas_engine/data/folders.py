"""Labelled sets of pictures: one folder per class, on disk or in a zip. Knows nothing of pixels.

    pets/cat/1.jpg  pets/cat/2.jpg  pets/guinea_pig/1.jpg       read_folder("pets")   read_zip("pets.zip")

    ClassFolder('pets', 2 classes, 3 pictures)
    .classes  ('cat', 'guinea_pig')      .pretty  ('cat', 'guinea pig')      .items[2].label  1

Nothing is decoded here: an item holds a path, or the bytes of a zip's member, and `read_labelled_files` reads
them.
What is not a picture is left out, and listed in `.ignored` with the reason.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from atlas_engine.class_names import tidy_name
from atlas_engine.config import MAX_CLASS_NAME
from atlas_engine.data.decode import read_each
from atlas_engine.data.formats import printable
from atlas_engine.data.image import DEFAULT_LIMITS, Image, ImageLimits
from atlas_engine.data.listing import Ignored, Listing, list_folder, list_zip, shown, unwrapped
from atlas_engine.data.zips import DEFAULT_ZIP_LIMITS, ZipLimits, open_zip
from atlas_engine.errors import ConfigError, ImageError, SupportError

__all__ = [
    "ClassFolder",
    "Ignored",
    "ImageFile",
    "LabelledFile",
    "UnlabelledFolder",
    "display_name",
    "natural_key",
    "read_folder",
    "read_images_in",
    "read_labelled_files",
    "read_zip",
]


Source = Path | bytes
Ref = TypeVar("Ref")
AnyItem = TypeVar("AnyItem", "LabelledFile", "ImageFile")


@dataclass(frozen=True)
class ImageFile:
    """A picture without a label."""

    name: str
    source: Source = field(repr=False)


@dataclass(frozen=True)
class LabelledFile:
    """A labelled picture. Pictures of one class that share a `track` show one and the same thing."""

    name: str
    label: int
    source: Source = field(repr=False)
    track: str | None = None


@dataclass(frozen=True, repr=False)
class ClassFolder:
    """Pictures with labels: `classes` as the folders are called, `items` in natural order, class by class."""

    name: str
    classes: tuple[str, ...]
    items: tuple[LabelledFile, ...]
    ignored: tuple[Ignored, ...] = ()

    @property
    def pretty(self) -> tuple[str, ...]:
        """The class names as people write them: `guinea_pig` is `guinea pig`."""
        return tuple(map(display_name, self.classes))

    @property
    def counts(self) -> tuple[int, ...]:
        """How many pictures each class has."""
        labels = [item.label for item in self.items]
        return tuple(labels.count(label) for label in range(len(self.classes)))

    def __repr__(self) -> str:
        return f"ClassFolder({self.name!r}, {len(self.classes)} classes, {len(self.items)} pictures)"


@dataclass(frozen=True, repr=False)
class UnlabelledFolder:
    """Pictures without labels, in natural order."""

    name: str
    items: tuple[ImageFile, ...]
    ignored: tuple[Ignored, ...] = ()

    def __repr__(self) -> str:
        return f"PhotoRoll({self.name!r}, {len(self.items)} pictures)"


def read_folder(
    path: str | os.PathLike[str], *, min_classes: int = 2, track_pattern: str | None = None
) -> ClassFolder:
    """The pictures of a folder that has one sub-folder per class.

    `track_pattern` finds the track in a file's name without ending: its first group, or all it matches.
    `r"(\\d+)_"` takes `00003` from `00003_00017.webp`.
    """
    listing = list_folder(path, deepest=2)
    return _class_folder(listing, _as_it_is, min_classes=min_classes, track_pattern=track_pattern)


def read_zip(
    source: str | os.PathLike[str] | bytes,
    *,
    name: str | None = None,
    min_classes: int = 2,
    track_pattern: str | None = None,
    limits: ZipLimits = DEFAULT_ZIP_LIMITS,
) -> ClassFolder:
    """The pictures of a zip (its path or bytes) with one folder per class, perhaps in an outer folder."""
    with open_zip(source, name=name, limits=limits) as archive:
        listing = unwrapped(list_zip(archive))
        return _class_folder(listing, archive.read, min_classes=min_classes, track_pattern=track_pattern)


def read_images_in(
    source: str | os.PathLike[str] | bytes,
    *,
    name: str | None = None,
    limits: ZipLimits = DEFAULT_ZIP_LIMITS,
) -> UnlabelledFolder:
    """All pictures below a folder, or in a zip (its path or bytes), however deep and without labels."""
    if isinstance(source, bytes) or Path(source).is_file():
        with open_zip(source, name=name, limits=limits) as archive:
            return _photo_roll(list_zip(archive), archive.read)
    return _photo_roll(list_folder(source, deepest=None), _as_it_is)


def read_labelled_files(
    items: Iterable[AnyItem],
    *,
    limits: ImageLimits = DEFAULT_LIMITS,
    isolated: bool = True,
    on_error: Literal["raise", "skip"] = "raise",
) -> tuple[list[tuple[AnyItem, Image]], list[ImageError]]:
    """Each item that could be read beside its picture, and the errors of the others.

    With `on_error="raise"` the first error is raised instead.
    """
    named = ((item, item.name, item.source) for item in items)
    return read_each(named, limits=limits, isolated=isolated, on_error=on_error)


def display_name(folder: str) -> str:
    """A folder's name as people write it.

    >>> pretty_name("guinea_pig"), pretty_name("t-shirt")
    ('guinea pig', 't-shirt')
    """
    words = tidy_name(unicodedata.normalize("NFC", folder).replace("_", " "))
    return printable(words, most=MAX_CLASS_NAME + 1)


def natural_key(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """A sort key under which `img2` comes before `img10`, and capitals do not matter.

    >>> sorted(["img10", "Img2", "img1"], key=natural_key)
    ['img1', 'Img2', 'img10']
    """
    # A number is ordered by its count of digits, then by these: int() would refuse very long ones.
    pieces = [piece.lstrip("0") or piece[:1] for piece in re.findall(r"[0-9]+|[^0-9]+", name.casefold())]
    return [(0, len(p), p) if p[0] in "0123456789" else (1, 0, p) for p in pieces], name


# ---- from a listing to classes


def _class_folder(
    listing: Listing[Ref],
    load: Callable[[Ref], Source],
    *,
    min_classes: int,
    track_pattern: str | None,
) -> ClassFolder:
    track = _tracker(track_pattern)
    ignored = list(listing.ignored)
    by_class: dict[str, list[tuple[str, Ref]]] = {parts[0]: [] for parts in listing.folders if parts}
    for parts, ref in listing.files:
        if len(parts) > 1:
            by_class.setdefault(parts[0], [])
        if len(parts) == 2:
            by_class[parts[0]].append((parts[1], ref))
        else:
            reason = (
                "lies beside the class folders" if len(parts) == 1 else "lies too deep in its class folder"
            )
            ignored.append(Ignored(shown(parts), reason))
    classes = tuple(sorted(by_class, key=natural_key))
    _check_classes(listing.name, classes, min_classes=min_classes)
    _check_pictures(listing.name, {folder: len(by_class[folder]) for folder in classes}, ignored)
    items = tuple(
        LabelledFile(f"{folder}/{file}", label, load(ref), track(file))
        for label, folder in enumerate(classes)
        for file, ref in sorted(by_class[folder], key=lambda pair: natural_key(pair[0]))
    )
    return ClassFolder(listing.name, classes, items, _sorted(ignored))


def _check_classes(name: str, classes: tuple[str, ...], *, min_classes: int) -> None:
    if not classes:
        raise SupportError(
            f"{name}: has no sub-folders. Make one per class and put its pictures in: "
            f"{name}/cat, {name}/dog and so on."
        )
    seen: dict[str, str] = {}
    for folder in classes:
        pretty = display_name(folder)
        if not pretty:
            raise SupportError(f"{name}: folder '{printable(folder)}' names no class. Rename it.")
        if len(pretty) > MAX_CLASS_NAME:
            raise SupportError(
                f"{name}: the class name '{printable(pretty, most=40)}' has {len(folder)} characters, "
                f"but at most {MAX_CLASS_NAME} are taken. Rename the folder."
            )
        twin = seen.setdefault(pretty.casefold(), folder)
        if twin != folder:
            raise SupportError(
                f"{name}: folders '{printable(twin)}' and '{printable(folder)}' name the same class. "
                "Merge them, or rename one."
            )
    if len(classes) < min_classes:
        raise SupportError(
            f"{name}: has {len(classes)} class ({', '.join(seen)}), but at least {min_classes} are needed. "
            "Add a folder of pictures for another class."
        )


def _check_pictures(name: str, counts: dict[str, int], ignored: Sequence[Ignored]) -> None:
    for folder, count in counts.items():
        if count:
            continue
        shown = printable(folder)
        left_out = [entry for entry in ignored if entry.name.startswith(f"{shown}/")]
        hint = f" ('{left_out[0].name}' {left_out[0].reason})" if left_out else ""
        raise SupportError(
            f"{name}: class folder '{shown}' has no pictures in it{hint}. "
            "Put JPEG, PNG or WEBP pictures there, or remove it."
        )


def _photo_roll(listing: Listing[Ref], load: Callable[[Ref], Source]) -> UnlabelledFolder:
    if not listing.files:
        raise SupportError(f"{listing.name}: has no JPEG, PNG or WEBP pictures in it. Add some.")
    named = sorted(
        (("/".join(parts), ref) for parts, ref in listing.files), key=lambda pair: natural_key(pair[0])
    )
    photos = tuple(ImageFile(name, load(ref)) for name, ref in named)
    return UnlabelledFolder(listing.name, photos, _sorted(listing.ignored))


def _tracker(pattern: str | None) -> Callable[[str], str | None]:
    try:
        compiled = re.compile(pattern or "")
    except re.error as error:
        raise ConfigError(f"track_pattern {pattern!r} is no regular expression: {error}.") from None

    def track(file: str) -> str | None:
        found = compiled.search(Path(file).stem)
        return None if found is None or pattern is None else found[1 if compiled.groups else 0]

    return track


def _sorted(ignored: Iterable[Ignored]) -> tuple[Ignored, ...]:
    return tuple(sorted(ignored, key=lambda entry: natural_key(entry.name)))


def _as_it_is(path: Path) -> Path:
    return path
