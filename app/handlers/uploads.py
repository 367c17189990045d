"""What a visitor gives: image files, each with its class where that is known, one by one or in a zip.

Images are paths here until `read_images` reads them. One that cannot be read is left out, with the engine's
sentence that says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import atlas_engine as atlas
from app import text
from app.limits import LIMITS
from app.priority_lock import DEVICE, READING
from app.session import StoppedEarlyError, StopSignal
from app.storage import require_room

__all__ = [
    "ClassRow",
    "LabelledImage",
    "ReadBudget",
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


class ReadBudget:
    """The seconds that reading the images of one request may take, and the signal that ends it at once.

    One image is read at a time in this process. `urgent` reads, of a question, go before those of a run.
    """

    POLL_SECONDS = 0.1

    def __init__(
        self,
        stop_signal: StopSignal | None = None,
        *,
        seconds: float = LIMITS.read_seconds,
        urgent: bool = False,
    ) -> None:
        self._stop_signal, self._seconds, self._urgent = stop_signal or StopSignal(), seconds, urgent
        self._end = time.monotonic() + seconds

    def read(self, path: str) -> atlas.Image:
        """The image of a file. An AtlasError where it cannot be read, or where reading has to end."""
        self._stop_signal.raise_if_set()
        done = threading.Event()
        found: list[atlas.Image | Exception] = []

        def read() -> None:
            try:
                with READING.hold(urgent=self._urgent):
                    found.append(atlas.read_image(path, name=Path(path).name, limits=self._limits()))
            except Exception as error:
                found.append(error)
            done.set()

        with DEVICE.paused():  # others may compute meanwhile
            threading.Thread(target=read, name="atlas-read", daemon=True).start()
            while not done.wait(self.POLL_SECONDS):
                self._stop_signal.raise_if_set()  # what it decodes now is given up
                self._raise_if_late()
        if isinstance(found[0], Exception):
            self._raise_if_late()
            raise found[0]
        return found[0]

    def _limits(self) -> atlas.ImageLimits:
        left = max(self._end - time.monotonic(), 0.05)
        return atlas.ImageLimits(seconds=min(LIMITS.image_seconds, left))

    def _raise_if_late(self) -> None:
        if time.monotonic() > self._end:
            raise ReadingTimeError(text.server.slow_reading(self._seconds))


class ReadingTimeError(atlas.AtlasError):
    """Reading the images of a request took too long: it ends the request, not one image."""


def read_images(
    files: Iterable[UploadedImage], budget: ReadBudget | None = None
) -> tuple[tuple[LabelledImage, ...], tuple[str, ...]]:
    """The images that can be read, and the engine's sentence for each that cannot.

    Raises an AtlasError where the budget is used up, or the visitor stops.
    """
    budget = budget or ReadBudget()
    images: list[LabelledImage] = []
    refusals: list[str] = []
    for file in files:
        try:
            image = budget.read(file.path)
        except (ReadingTimeError, StoppedEarlyError):
            raise
        except atlas.AtlasError as error:
            refusals.append(str(error))
        else:
            images.append(LabelledImage(file.path, image, file.label))
    return tuple(images), tuple(refusals)


def read_samples(
    files: Sequence[UploadedImage], classes: Sequence[str], budget: ReadBudget | None = None
) -> tuple[tuple[LabelledImage, ...], tuple[str, ...]]:
    """`read_images` of the images to try it on; a label counts only if it is one of `classes`."""
    check_samples(files)
    names = {name.casefold(): name for name in classes}
    labelled = (replace(file, label=names.get((file.label or "").casefold())) for file in files)
    return read_images(labelled, budget)


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
    _require_room((item.source for item in listed.items), folder)
    paths: list[list[str]] = [[] for _ in listed.classes]
    for place, item in enumerate(listed.items):
        paths[item.label].append(_write(folder, place, item.name, item.source))
    return tuple(
        ClassRow(name, tuple(found)) for name, found in zip(listed.display_names, paths, strict=True)
    )


def unpack_images(archive: str, folder: Path) -> tuple[UploadedImage, ...]:
    """All images of a zip, written to `folder`; the name of the folder around one is its label."""
    listed = atlas.read_images_in(archive, name=Path(archive).name, limits=ZIP_LIMITS)
    _require_room((item.source for item in listed.items), folder)
    return tuple(
        UploadedImage(_write(folder, place, item.name, item.source), _label_from_folder(item.name))
        for place, item in enumerate(listed.items)
    )


def _require_room(sources: Iterable[bytes | Path], folder: Path) -> None:
    """Count what a zip has really unpacked to, before it is written."""
    nbytes = sum(len(source) for source in sources if isinstance(source, bytes))
    require_room(folder, 2 * nbytes)  # Gradio's folder gets a copy


def _write(folder: Path, place: int, name: str, source: bytes | Path) -> str:
    """Two files may share a name, and a stranger chose the name: a folder of our own holds each."""
    target = folder / str(place) / _shorten(Path(name).name)
    target.parent.mkdir()
    target.write_bytes(bytes(source) if isinstance(source, bytes) else source.read_bytes())
    return str(target)


def _shorten(name: str, *, most_bytes: int = 200) -> str:
    """A file name that every disk takes, with its ending: those in a zip may have 65,535 bytes."""
    ending = Path(name).suffix[-8:]
    stem = Path(name).stem.encode()[: most_bytes - len(ending.encode())]
    return stem.decode(errors="ignore") + ending


def _label_from_folder(name: str) -> str | None:
    return atlas.tidy_name(Path(name).parent.name.replace("_", " ")) or None
