"""What a visitor teaches: classes with their pictures, and pictures to try it on. Knows nothing of Gradio.

Pictures are paths here, read by `read_lesson` a few at a time, so that progress can be shown. One that
cannot be read is left out with the engine's sentence; what makes the whole lesson impossible is raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import atlas_engine as atlas
from app import text
from app.handlers.pictures import read_pictures
from app.limits import LIMITS

__all__ = [
    "ClassRow",
    "FewShotRequest",
    "LabelledImage",
    "Reading",
    "SampleFile",
    "read_lesson",
    "read_samples",
    "unpack",
    "unpack_photos",
]

ZIP_LIMITS = atlas.ZipLimits(
    max_zip_bytes=LIMITS.file_megabytes << 20,
    max_files=LIMITS.zip_files,
    max_total_bytes=LIMITS.zip_megabytes << 20,
)


@dataclass(frozen=True)
class ClassRow:
    """A class as the visitor gives it."""

    name: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class SampleFile:
    """A picture to try it on, and its class where the visitor tells it."""

    path: str
    truth: str | None = None


@dataclass(frozen=True)
class LabelledImage:
    """A sample that could be read."""

    path: str
    picture: atlas.Image
    truth: str | None = None


@dataclass(frozen=True)
class FewShotRequest:
    """Classes and samples, checked: names are there, and no limit is passed. Empty rows are dropped.

    Classes and their pictures are put in the order that a folder of them has, so that the library, given such
    a folder, learns exactly the same.
    """

    rows: tuple[ClassRow, ...]
    samples: tuple[SampleFile, ...] = ()

    def __post_init__(self) -> None:
        tidied = [ClassRow(atlas.tidy_name(row.name), row.paths) for row in self.rows]
        kept = {place: row for place, row in enumerate(tidied, start=1) if row.name or row.paths}
        _check_rows(kept)
        object.__setattr__(self, "rows", tuple(sorted(map(_in_order, kept.values()), key=_natural_name)))
        _check_samples(self.samples)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(row.name for row in self.rows)

    @property
    def total(self) -> int:
        """Pictures in it, of both sorts."""
        return sum(len(row.paths) for row in self.rows) + len(self.samples)


@dataclass(frozen=True)
class Reading:
    """How far the reading of a lesson has come; the support is there when all has been read."""

    seen: int
    total: int
    support: atlas.Support | None = None
    learned: tuple[LabelledImage, ...] = ()  # the support's pictures with their paths and classes
    samples: tuple[LabelledImage, ...] = ()
    left_out: tuple[str, ...] = ()


def read_lesson(lesson: FewShotRequest) -> Iterator[Reading]:
    """Read every picture, telling how far it is; the last state holds the support and the samples."""
    named = [(label, path) for label, row in enumerate(lesson.rows) for path in row.paths]
    pictures: list[atlas.Image] = []
    labels: list[int] = []
    learned: list[LabelledImage] = []
    left_out: list[str] = []
    for seen, ((label, path), found) in enumerate(read_pictures((one, one[1]) for one in named)):
        if seen % LIMITS.images_per_step == 0:
            yield Reading(seen, lesson.total)
        if isinstance(found, str):
            left_out.append(found)
        else:
            pictures.append(found)
            labels.append(label)
            learned.append(LabelledImage(path, found, lesson.classes[label]))
    yield Reading(len(named), lesson.total)
    samples, refused = read_samples(lesson.samples, lesson.classes)
    left_out += refused
    try:
        support = atlas.Support(tuple(pictures), tuple(labels), lesson.classes)
    except atlas.AtlasError as error:
        raise atlas.AtlasError(" ".join([str(error), *left_out[:3]])) from None
    yield Reading(lesson.total, lesson.total, support, tuple(learned), samples, tuple(left_out))


def read_samples(
    samples: Sequence[SampleFile], classes: Sequence[str]
) -> tuple[tuple[LabelledImage, ...], tuple[str, ...]]:
    """The samples that can be read, each with its class if that is one of `classes`; and the refusals."""
    _check_samples(samples)
    names = {name.casefold(): name for name in classes}
    shown: list[LabelledImage] = []
    refused: list[str] = []
    for sample, found in read_pictures((sample, sample.path) for sample in samples):
        if isinstance(found, str):
            refused.append(found)
        else:
            shown.append(LabelledImage(sample.path, found, names.get((sample.truth or "").casefold())))
    return tuple(shown), tuple(refused)


def unpack(archive: str, folder: Path, *, min_classes: int = 2) -> tuple[ClassRow, ...]:
    """The pictures of a zip with one sub-folder per class as files in `folder`, a row a class."""
    listed = atlas.read_zip(archive, name=Path(archive).name, min_classes=min_classes, limits=ZIP_LIMITS)
    if len(listed.classes) > LIMITS.rows:
        raise atlas.AtlasError(text.many_rows(len(listed.classes)))
    paths: list[list[str]] = [[] for _ in listed.classes]
    for place, item in enumerate(listed.items):
        paths[item.label].append(_written(folder, place, item.name, item.source))
    return tuple(
        ClassRow(name, tuple(found)) for name, found in zip(listed.display_names, paths, strict=True)
    )


def unpack_photos(archive: str, folder: Path) -> tuple[SampleFile, ...]:
    """All pictures of a zip as files in `folder`, from anywhere in it; what is around one is its class."""
    listed = atlas.read_images_in(archive, name=Path(archive).name, limits=ZIP_LIMITS)
    return tuple(
        SampleFile(_written(folder, place, photo.name, photo.source), _folder_words(photo.name))
        for place, photo in enumerate(listed.items)
    )


def _written(folder: Path, place: int, name: str, source: bytes | Path) -> str:
    """Two files may share a name, and a name is a stranger's: a folder of our own holds each."""
    target = folder / str(place) / Path(name).name
    target.parent.mkdir()
    target.write_bytes(bytes(source) if isinstance(source, bytes) else source.read_bytes())
    return str(target)


def _folder_words(name: str) -> str | None:
    return atlas.tidy_name(Path(name).parent.name.replace("_", " ")) or None


def _in_order(row: ClassRow) -> ClassRow:
    return ClassRow(row.name, tuple(sorted(row.paths, key=lambda path: atlas.natural_key(Path(path).name))))


def _natural_name(row: ClassRow) -> tuple[object, ...]:
    return atlas.natural_key(row.name)


def _check_rows(rows: Mapping[int, ClassRow]) -> None:
    """Rows by their place on the page, where empty ones stand among them."""
    for place, row in rows.items():
        if not row.name:
            raise atlas.AtlasError(text.nameless(place))
        if not row.paths:
            raise atlas.AtlasError(text.no_pictures(row.name))
    if len(rows) < 2:
        raise atlas.AtlasError(text.few_rows(len(rows)))
    if len(rows) > LIMITS.rows:
        raise atlas.AtlasError(text.many_rows(len(rows)))
    count = sum(len(row.paths) for row in rows.values())
    if count > LIMITS.lesson_images:
        raise atlas.AtlasError(text.many_lesson_images(count))


def _check_samples(samples: Sequence[SampleFile]) -> None:
    if len(samples) > LIMITS.samples:
        raise atlas.AtlasError(text.many_samples(len(samples)))
