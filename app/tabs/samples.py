"""Pictures in a drop zone, each with its class where it is known: as the page reads and fills them.

Knows nothing of what is done with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

from app import alerts, components
from app.events import user_message
from app.handlers.lesson import SampleFile, unpack, unpack_photos
from app.tabs.rows import GalleryItems

__all__ = ["in_gallery", "photos_from_zip", "samples_from_zip", "samples_of"]


def samples_of(items: GalleryItems) -> tuple[SampleFile, ...]:
    """The pictures of a drop zone; a caption tells a picture's class."""
    return tuple(SampleFile(path, caption) for path, caption in items or [])


def in_gallery(samples: Sequence[SampleFile]) -> list[tuple[str, str | None]]:
    """The same as a drop zone takes them."""
    return [(sample.path, sample.truth) for sample in samples]


def samples_from_zip(gallery: gr.Gallery) -> Callable[[str], list[Any]]:
    """An alert, and the pictures of a zip with one folder per class, for a drop zone."""
    return _filling(gallery, _by_class)


def photos_from_zip(gallery: gr.Gallery) -> Callable[[str], list[Any]]:
    """The same of a zip whose pictures may be anywhere in it."""
    return _filling(gallery, unpack_photos)


def _by_class(archive: str, folder: Path) -> tuple[SampleFile, ...]:
    rows = unpack(archive, folder, min_classes=1)
    return tuple(SampleFile(path, row.name) for row in rows for path in row.paths)


def _filling(
    gallery: gr.Gallery, read: Callable[[str, Path], Sequence[SampleFile]]
) -> Callable[[str], list[Any]]:
    def on_zip(archive: str) -> list[Any]:
        try:
            with TemporaryDirectory() as folder:
                samples = [
                    replace(one, path=components.handed_over(gallery, one.path))
                    for one in read(archive, Path(folder))
                ]
        except Exception as error:
            return [alerts.alert_html(user_message(error)), gr.skip()]
        return [alerts.NOTHING, in_gallery(samples)]

    return on_zip
