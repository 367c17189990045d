"""What a visitor gives: image files, each with its class where that is known, one by one or in a zip.

Images are paths here until `read_images` reads them. One that cannot be read is left out, with the engine's
sentence that says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import atlas_engine as atlas
from app import text
from app.limits import LIMITS

__all__ = [
    "ClassRow",
    "LabelledImage",
    "UploadedImage",
    "check_samples",
    "read_images",
    "read_samples",
    "shrink_to_model",
    "unpack_classes",
    "unpack_images",
]

ZIP_LIMITS = atlas.ZipLimits(
    max_zip_bytes=LIMITS.file_megabytes << 20,
    max_files=LIMITS.zip_files,
    max_total_bytes=LIMITS.zip_megabytes << 20,
)


@dataclass(frozen=True)
class ClassRow:
    """A class name and the paths of its images."""

    name: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class UploadedImage:
    """The path of an image, and its class where the visitor gives it."""

    path: str
    label: str | None = None


@dataclass(frozen=True)
class LabelledImage:
    """An image that was read, where it came from, and its class where that is known."""

    path: str
    image: atlas.Image
    label: str | None = None


def read_images(files: Iterable[UploadedImage]) -> tuple[tuple[LabelledImage, ...], tuple[str, ...]]:
    """The images that can be read, and the engine's sentence for each that cannot."""
    images: list[LabelledImage] = []
    refusals: list[str] = []
    for file in files:
        try:
            image = atlas.read_image(file.path, name=Path(file.path).name)
        except atlas.AtlasError as error:
            refusals.append(str(error))
        else:
            images.append(LabelledImage(file.path, image, file.label))
    return tuple(images), tuple(refusals)


def read_samples(
    files: Sequence[UploadedImage], classes: Sequence[str]
) -> tuple[tuple[LabelledImage, ...], tuple[str, ...]]:
    """`read_images` of the images to try it on; a label counts only if it is one of `classes`."""
    check_samples(files)
    names = {name.casefold(): name for name in classes}
    return read_images(replace(file, label=names.get((file.label or "").casefold())) for file in files)


def check_samples(files: Sequence[UploadedImage]) -> None:
    """Refuse more images to try it on than a session holds."""
    if len(files) > LIMITS.samples:
        raise atlas.AtlasError(text.teach.many_samples(len(files)))


def shrink_to_model(engine: atlas.Atlas, images: Sequence[LabelledImage]) -> tuple[LabelledImage, ...]:
    """The images at the size that the model sees: its answers stay the same, and a session can hold many."""
    if not images:
        return ()
    pixels = engine.pixels([one.image for one in images])  # (N 3 S S)
    return tuple(
        replace(one, image=atlas.Image(one.image.name, small.permute(1, 2, 0).numpy()))
        for one, small in zip(images, pixels, strict=True)
    )


def unpack_classes(archive: str, folder: Path, *, min_classes: int = 2) -> tuple[ClassRow, ...]:
    """The images of a zip with one sub-folder per class, written to `folder`: a row per class."""
    listed = atlas.read_zip(archive, name=Path(archive).name, min_classes=min_classes, limits=ZIP_LIMITS)
    if len(listed.classes) > LIMITS.rows:
        raise atlas.AtlasError(text.teach.many_rows(len(listed.classes)))
    paths: list[list[str]] = [[] for _ in listed.classes]
    for place, item in enumerate(listed.items):
        paths[item.label].append(_write(folder, place, item.name, item.source))
    return tuple(
        ClassRow(name, tuple(found)) for name, found in zip(listed.display_names, paths, strict=True)
    )


def unpack_images(archive: str, folder: Path) -> tuple[UploadedImage, ...]:
    """All images of a zip, written to `folder`; the name of the folder around one is its label."""
    listed = atlas.read_images_in(archive, name=Path(archive).name, limits=ZIP_LIMITS)
    return tuple(
        UploadedImage(_write(folder, place, item.name, item.source), _label_from_folder(item.name))
        for place, item in enumerate(listed.items)
    )


def _write(folder: Path, place: int, name: str, source: bytes | Path) -> str:
    """Two files may share a name, and a stranger chose the name: a folder of our own holds each."""
    target = folder / str(place) / Path(name).name
    target.parent.mkdir()
    target.write_bytes(bytes(source) if isinstance(source, bytes) else source.read_bytes())
    return str(target)


def _label_from_folder(name: str) -> str | None:
    return atlas.tidy_name(Path(name).parent.name.replace("_", " ")) or None
