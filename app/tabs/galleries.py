"""Images in a gallery, each with its class where it is known: as Gradio has them, and as the handlers do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import gradio as gr

from app import views
from app.events import PRIVATE, UNPACK, Updates, user_message
from app.handlers.uploads import UploadedImage, unpack_classes, unpack_images
from app.tabs.components import copy_to_cache

__all__ = [
    "GalleryItems",
    "files_in",
    "fill_from_class_zip",
    "fill_from_zip",
    "items_of",
    "paths_in",
]

GalleryItems = list[tuple[str, str | None]] | None
"""What Gradio hands over for a gallery: paths with captions; None where it is empty."""


def paths_in(items: GalleryItems) -> tuple[str, ...]:
    """The paths of a gallery's images."""
    return tuple(path for path, _ in items or [])


def files_in(items: GalleryItems) -> tuple[UploadedImage, ...]:
    """A gallery's images; a caption is the image's class."""
    return tuple(UploadedImage(path, caption) for path, caption in items or [])


def items_of(files: Sequence[UploadedImage]) -> list[tuple[str, str | None]]:
    """The same as a gallery takes them."""
    return [(file.path, file.label) for file in files]


def fill_from_zip(archive: gr.UploadButton, gallery: gr.Gallery, alert: gr.HTML) -> None:
    """Let an uploaded zip, whose images may be anywhere in it, fill a gallery; `alert` says why it cannot."""
    _fill(archive, gallery, alert, unpack_images)


def fill_from_class_zip(archive: gr.UploadButton, gallery: gr.Gallery, alert: gr.HTML) -> None:
    """The same for a zip with one folder per class."""
    _fill(archive, gallery, alert, _unpack_by_class)


def _unpack_by_class(archive: str, folder: Path) -> tuple[UploadedImage, ...]:
    rows = unpack_classes(archive, folder, min_classes=1)
    return tuple(UploadedImage(path, row.name) for row in rows for path in row.paths)


def _fill(
    archive: gr.UploadButton,
    gallery: gr.Gallery,
    alert: gr.HTML,
    unpack: Callable[[str, Path], Sequence[UploadedImage]],
) -> None:
    def on_zip(path: str) -> Updates:
        try:
            with TemporaryDirectory() as folder:
                files = [
                    replace(file, path=copy_to_cache(gallery, file.path))
                    for file in unpack(path, Path(folder))
                ]
        except Exception as error:
            return {alert: views.render_alert(user_message(error))}
        return {alert: views.EMPTY, gallery: items_of(files)}

    archive.upload(on_zip, [archive], [alert, gallery], **UNPACK, **PRIVATE)
