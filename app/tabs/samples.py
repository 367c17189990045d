"""Pictures in a drop zone, each with its class where it is known: as the page reads and fills them.

Knows nothing of what is done with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

from app import alerts
from app.border import told
from app.handlers.lesson import Sample, unpack
from app.tabs.rows import GalleryItems

__all__ = ["in_gallery", "samples_from_zip", "samples_of"]


def samples_of(items: GalleryItems) -> tuple[Sample, ...]:
    """The pictures of a drop zone; a caption tells a picture's class."""
    return tuple(Sample(path, caption) for path, caption in items or [])


def in_gallery(samples: Sequence[Sample]) -> list[tuple[str, str | None]]:
    """The same as a drop zone takes them."""
    return [(sample.path, sample.truth) for sample in samples]


def samples_from_zip(archive: str) -> Iterator[list[Any]]:
    """An alert, and the pictures of a zip for a drop zone, each under its folder's name.

    Gradio keeps copies of the pictures, so ours go when it has them.
    """
    with TemporaryDirectory() as folder:
        try:
            rows = unpack(archive, Path(folder), min_classes=1)
        except Exception as error:
            yield [alerts.alert_html(told(error)), gr.skip()]
        else:
            yield [alerts.NOTHING, [(path, row.name) for row in rows for path in row.paths]]
