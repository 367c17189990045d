"""Labelled sets of image files: one folder per class, on disk or in a zip.

    pets/cat/1.jpg  pets/cat/2.jpg  pets/guinea_pig/1.jpg

    folder = read_folder("pets")        # or read_zip("pets.zip")
    folder                              # ClassFolder('pets', 2 classes, 3 images)
    folder.classes                      # ('cat', 'guinea_pig')
    folder.display_names                # ('cat', 'guinea pig')
    folder.items[2].label               # 1

An item holds a path, or the bytes of a zip's member; `read_labelled_files` decodes them. Files that are not
images are ignored, and listed in `folder.ignored` with the reason.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from atlas_engine.class_names import MAX_CLASS_NAME, tidy_name
from atlas_engine.data.decode import read_each
from atlas_engine.data.formats import printable_name
from atlas_engine.data.image import DEFAULT_LIMITS, Image, ImageLimits, StopQuestion
from atlas_engine.data.listing import (
    Ignored,
    Listing,
    Ref,
    drop_outer_folder,
    list_folder,
    list_zip,
    printable_path,
)
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
Item = TypeVar("Item", "LabelledFile", "ImageFile")


@dataclass(frozen=True)
class ImageFile:
    """An image file without a label."""

    name: str
    source: Source = field(repr=False)


@dataclass(frozen=True)
class LabelledFile:
    """A labelled image file. Images of one class that share a `track` show the same object."""

    name: str
    label: int
    source: Source = field(repr=False)
    track: str | None = None


@dataclass(frozen=True, repr=False)
class ClassFolder:
    """Labelled image files: `classes` as the folders are called, `items` by class, in natural order."""

    name: str
    classes: tuple[str, ...]
    items: tuple[LabelledFile, ...]
    ignored: tuple[Ignored, ...] = ()

    @property
    def display_names(self) -> tuple[str, ...]:
        """The class names as people write them: `guinea_pig` is `guinea pig`."""
        return tuple(map(display_name, self.classes))

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of images of each class."""
        labels = [item.label for item in self.items]
        return tuple(labels.count(label) for label in range(len(self.classes)))

    def __repr__(self) -> str:
        return f"ClassFolder({self.name!r}, {len(self.classes)} classes, {len(self.items)} images)"


@dataclass(frozen=True, repr=False)
class UnlabelledFolder:
    """Image files without labels, in natural order."""

    name: str
    items: tuple[ImageFile, ...]
    ignored: tuple[Ignored, ...] = ()

    def __repr__(self) -> str:
        return f"UnlabelledFolder({self.name!r}, {len(self.items)} images)"


def read_folder(
    path: str | os.PathLike[str], *, min_classes: int = 2, track_pattern: str | None = None
) -> ClassFolder:
    """The image files of a folder that has one sub-folder per class.

    `track_pattern` finds the track in a file's name without its ending: the first group, or else the match.
    `r"(\\d+)_"` takes `00003` from `00003_00017.webp`.
    """
    listing = list_folder(path, max_depth=2)
    return _class_folder(listing, _same_path, min_classes=min_classes, track_pattern=track_pattern)


def read_zip(
    source: str | os.PathLike[str] | bytes,
    *,
    name: str | None = None,
    min_classes: int = 2,
    track_pattern: str | None = None,
    limits: ZipLimits = DEFAULT_ZIP_LIMITS,
    stop: StopQuestion | None = None,
) -> ClassFolder:
    """The image files of a zip (its path or bytes) with one folder per class, perhaps in an outer folder.

    A StoppedError ends the unpacking once `stop` is true.
    """
    with open_zip(source, name=name, limits=limits, stop=stop) as archive:
        listing = drop_outer_folder(list_zip(archive))
        return _class_folder(listing, archive.read, min_classes=min_classes, track_pattern=track_pattern)


def read_images_in(
    source: str | os.PathLike[str] | bytes,
    *,
    name: str | None = None,
    limits: ZipLimits = DEFAULT_ZIP_LIMITS,
    stop: StopQuestion | None = None,
) -> UnlabelledFolder:
    """All image files in a folder or a zip (its path or bytes), at any depth, without labels.

    A StoppedError ends the unpacking of a zip once `stop` is true.
    """
    if isinstance(source, bytes) or Path(source).is_file():
        with open_zip(source, name=name, limits=limits, stop=stop) as archive:
            return _unlabelled_folder(list_zip(archive), archive.read)
    return _unlabelled_folder(list_folder(source, max_depth=None), _same_path)


def read_labelled_files(
    items: Iterable[Item],
    *,
    limits: ImageLimits = DEFAULT_LIMITS,
    isolated: bool = True,
    on_error: Literal["raise", "skip"] = "raise",
    stop: StopQuestion | None = None,
) -> tuple[list[tuple[Item, Image]], list[ImageError]]:
    """Pairs (item, image) of the items that could be read, and the errors of the others.

    With `on_error="raise"` the first error is raised instead. A StoppedError ends the reading once `stop` is
    true.
    """
    named = ((item, item.name, item.source) for item in items)
    return read_each(named, limits=limits, isolated=isolated, on_error=on_error, stop=stop)


def display_name(folder: str) -> str:
    """A folder's name as people write it.

    >>> display_name("guinea_pig"), display_name("t-shirt")
    ('guinea pig', 't-shirt')
    """
    words = tidy_name(unicodedata.normalize("NFC", folder).replace("_", " "))
    return printable_name(words, most=MAX_CLASS_NAME + 1)


def natural_key(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """A sort key that puts `img2` before `img10` and ignores capitals.

    >>> sorted(["img10", "Img2", "img1"], key=natural_key)
    ['img1', 'Img2', 'img10']
    """
    # Numbers are ordered by their count of digits, then by the digits: int() refuses very long ones.
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
    find_track = _track_finder(track_pattern)
    ignored = list(listing.ignored)
    by_class: dict[str, list[tuple[str, Ref]]] = {parts[0]: [] for parts in listing.folders if parts}
    for parts, ref in listing.files:
        if len(parts) > 1:
            by_class.setdefault(parts[0], [])
        if len(parts) == 2:
            by_class[parts[0]].append((parts[1], ref))
        else:
            where = "beside the class folders" if len(parts) == 1 else "too deep in its class folder"
            ignored.append(Ignored(printable_path(parts), f"lies {where}"))
    classes = tuple(sorted(by_class, key=natural_key))
    _check_classes(listing.name, classes, min_classes=min_classes)
    _check_counts(listing.name, {folder: len(by_class[folder]) for folder in classes}, ignored)
    items = tuple(
        LabelledFile(f"{folder}/{file}", label, load(ref), find_track(file))
        for label, folder in enumerate(classes)
        for file, ref in sorted(by_class[folder], key=lambda pair: natural_key(pair[0]))
    )
    return ClassFolder(listing.name, classes, items, _sorted(ignored))


def _check_classes(name: str, classes: tuple[str, ...], *, min_classes: int) -> None:
    if not classes:
        raise SupportError(
            f"{name}: has no sub-folders. Make one per class and put its images in: "
            f"{name}/cat, {name}/dog and so on."
        )
    folder_of: dict[str, str] = {}  # by class name, in lower case
    for folder in classes:
        class_name = display_name(folder)
        if not class_name:
            raise SupportError(f"{name}: folder '{printable_name(folder)}' names no class. Rename it.")
        if len(class_name) > MAX_CLASS_NAME:
            raise SupportError(
                f"{name}: the class name '{printable_name(class_name, most=40)}' has {len(folder)} "
                f"characters, but at most {MAX_CLASS_NAME} are taken. Rename the folder."
            )
        first = folder_of.setdefault(class_name.casefold(), folder)
        if first != folder:
            raise SupportError(
                f"{name}: folders '{printable_name(first)}' and '{printable_name(folder)}' name the same "
                "class. Merge them, or rename one."
            )
    if len(classes) < min_classes:
        raise SupportError(
            f"{name}: has {len(classes)} class ({', '.join(folder_of)}), but at least {min_classes} are "
            "needed. Add a folder of images for another class."
        )


def _check_counts(name: str, counts: dict[str, int], ignored: Sequence[Ignored]) -> None:
    for folder, count in counts.items():
        if count:
            continue
        folder_name = printable_name(folder)
        own = [entry for entry in ignored if entry.name.startswith(f"{folder_name}/")]
        hint = f" ('{own[0].name}' {own[0].reason})" if own else ""
        raise SupportError(
            f"{name}: class folder '{folder_name}' has no images in it{hint}. "
            "Put JPEG, PNG or WEBP images there, or remove it."
        )


def _unlabelled_folder(listing: Listing[Ref], load: Callable[[Ref], Source]) -> UnlabelledFolder:
    if not listing.files:
        raise SupportError(f"{listing.name}: has no JPEG, PNG or WEBP images in it. Add some.")
    named = [("/".join(parts), ref) for parts, ref in listing.files]
    named.sort(key=lambda pair: natural_key(pair[0]))
    items = tuple(ImageFile(name, load(ref)) for name, ref in named)
    return UnlabelledFolder(listing.name, items, _sorted(listing.ignored))


def _track_finder(pattern: str | None) -> Callable[[str], str | None]:
    try:
        compiled = re.compile(pattern or "")
    except re.error as error:
        raise ConfigError(f"track_pattern {pattern!r} is no regular expression: {error}.") from None

    def find_track(file: str) -> str | None:
        found = compiled.search(Path(file).stem)
        return None if found is None or pattern is None else found[1 if compiled.groups else 0]

    return find_track


def _sorted(ignored: Iterable[Ignored]) -> tuple[Ignored, ...]:
    return tuple(sorted(ignored, key=lambda entry: natural_key(entry.name)))


def _same_path(path: Path) -> Path:
    return path
