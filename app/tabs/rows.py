"""The classes of a lesson on the page: a row each, with a name and a drop zone. Knows nothing of torch.

All rows exist from the start and most are hidden, so that every event names the same components. The rows in
use are always the first ones: removing one moves the rest up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import alerts, components, text
from app.events import PRIVATE, QUICK, user_message
from app.handlers.lesson import ClassRow, unpack
from app.limits import LIMITS
from app.markup import note

__all__ = ["VALUES", "ClassRows", "class_rows", "gallery_paths"]

FEWEST = 2
VALUES = 3 * LIMITS.rows + 2  # that `ClassRows.fill` gives
GalleryItems = list[tuple[str, str | None]] | None


@dataclass(frozen=True)
class ClassRows:
    """The components of all rows, and how they are read and filled."""

    count: gr.State  # rows in use
    summary: gr.HTML  # classes and pictures, counted
    groups: list[gr.Row] = field(default_factory=list)
    names: list[gr.Textbox] = field(default_factory=list)
    pictures: list[gr.Gallery] = field(default_factory=list)
    removes: list[gr.Button] = field(default_factory=list)

    @property
    def inputs(self) -> list[Any]:
        """What `read` takes."""
        return [*self.names, *self.pictures]

    @property
    def outputs(self) -> list[Any]:
        """What `fill` gives values for."""
        return [self.count, self.summary, *self.groups, *self.names, *self.pictures]

    @staticmethod
    def read(values: Sequence[Any]) -> tuple[ClassRow, ...]:
        """The rows from the values of `inputs`, empty ones included."""
        names, pictures = values[: LIMITS.rows], values[LIMITS.rows :]
        return tuple(
            ClassRow(name or "", gallery_paths(items)) for name, items in zip(names, pictures, strict=True)
        )

    @staticmethod
    def fill(rows: Sequence[ClassRow], *, count: int | None = None) -> list[Any]:
        """Values for `outputs` that show these rows, and at least `count` of them."""
        shown = min(max(len(rows), count or 0, FEWEST), LIMITS.rows)
        padded = [*rows, *[ClassRow("", ())] * LIMITS.rows][: LIMITS.rows]
        return [
            shown,
            note(_summary(rows)),
            *(gr.update(visible=place < shown) for place in range(LIMITS.rows)),
            *(row.name for row in padded),
            *(list(row.paths) or None for row in padded),
        ]


def gallery_paths(items: GalleryItems) -> tuple[str, ...]:
    """The paths of the pictures in a drop zone."""
    return tuple(path for path, _ in items or [])


def class_rows(rows: Sequence[ClassRow], alert: gr.HTML) -> tuple[ClassRows, gr.UploadButton]:
    """Lay out the rows, filled with these, and wire what happens among them; `alert` tells of a bad zip."""
    summary = components.html_area(note(_summary(rows)), name="lesson-summary", render=False)
    made = ClassRows(gr.State(max(len(rows), FEWEST)), summary)
    for place in range(LIMITS.rows):
        row = rows[place] if place < len(rows) else ClassRow("", ())
        _lay_out(made, place, row, shown=place < max(len(rows), FEWEST))
    summary.render()
    with gr.Row(elem_classes="at-buttons"):
        add = gr.Button(text.ADD_ROW, size="sm", elem_id="add-class")
        archive = components.folder_or_zip(text.FILL_FROM_FOLDER, text.FILL_FROM_ZIP, name="lesson")
    add.click(_add, [made.count], [made.count, *made.groups], **QUICK)
    for place, remove in enumerate(made.removes):
        remove.click(partial(_remove, place), [made.count, *made.inputs], made.outputs, **QUICK)
    archive.upload(_filling(made.pictures[0]), [archive], [alert, *made.outputs], queue=False, **PRIVATE)
    changes = [*(one.change for one in made.pictures), *(one.blur for one in made.names)]
    gr.on(changes, _count, made.inputs, summary, trigger_mode="always_last", **QUICK)
    return made, archive


def _lay_out(made: ClassRows, place: int, row: ClassRow, *, shown: bool) -> None:
    with gr.Row(visible=shown, elem_classes="at-class", elem_id=f"class-{place + 1}") as group:
        with gr.Column(scale=2, min_width=110, elem_classes="at-class-name"):
            hints = text.CLASS_PLACEHOLDERS
            name = gr.Textbox(
                row.name,
                label=text.class_label(place + 1),
                placeholder=hints[place % len(hints)],
                max_lines=1,
            )
            remove = gr.Button(text.remove_label(place + 1), size="sm", elem_classes="at-remove")
        pictures = components.class_pictures(list(row.paths), place + 1)
    made.groups.append(group)
    made.names.append(name)
    made.pictures.append(pictures)
    made.removes.append(remove)


def _add(count: int) -> list[Any]:
    shown = min(count + 1, LIMITS.rows)
    return [shown, *(gr.update(visible=place < shown) for place in range(LIMITS.rows))]


def _remove(place: int, count: int, *values: Any) -> list[Any]:  # noqa: ANN401 - what Gradio hands over
    rows = list(ClassRows.read(values))
    del rows[place]
    return ClassRows.fill(rows[: count - 1], count=count - 1)


def _count(*values: Any) -> str:  # noqa: ANN401 - what Gradio hands over
    return note(_summary(ClassRows.read(values)))


def _summary(rows: Sequence[ClassRow]) -> str:
    named = [
        (atlas.tidy_name(row.name) or text.class_label(place), len(row.paths))
        for place, row in enumerate(rows, start=1)
        if row.paths
    ]
    return text.lesson_summary(named) if named else text.ZIP_HELP


def _filling(gallery: gr.Gallery) -> Callable[[str], list[Any]]:
    """Fill the rows from a zip; the drop zones share one folder of Gradio's for their pictures."""

    def on_zip(archive: str) -> list[Any]:
        try:
            with TemporaryDirectory() as folder:
                rows = [
                    ClassRow(row.name, tuple(components.handed_over(gallery, path) for path in row.paths))
                    for row in unpack(archive, Path(folder))
                ]
        except Exception as error:
            return [alerts.alert_html(user_message(error)), *[gr.skip()] * VALUES]
        return [alerts.NOTHING, *ClassRows.fill(rows)]

    return on_zip
