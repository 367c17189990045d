"""The classes to learn, on the page: a row each, with a name and a drop zone.

All rows exist from the start and most are hidden, so that every event names the same components. The rows in
use are always the first ones: removing one moves the rest up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import text, views
from app.events import PRIVATE, QUICK, Updates, Values, user_message
from app.handlers.uploads import ClassRow, unpack_classes
from app.limits import LIMITS
from app.tabs import components
from app.tabs.galleries import paths_in

__all__ = ["ClassRows"]

MIN_ROWS = 2
EMPTY_ROW = ClassRow("", ())


@dataclass(frozen=True)
class _RowComponents:
    group: gr.Row
    name: gr.Textbox
    images: gr.Gallery
    remove: gr.Button


@dataclass(frozen=True)
class ClassRows:
    """The components of all rows, and how they are read and filled."""

    count: gr.State  # rows in use
    summary: gr.HTML  # classes and images, counted
    rows: tuple[_RowComponents, ...]

    @classmethod
    def create(cls, filled: Sequence[ClassRow], alert: gr.HTML) -> ClassRows:
        """Lay out the rows, filled with these, and wire them; `alert` tells of a bad zip."""
        summary = components.html_area(
            views.render_note(_summary(filled)), name="lesson-summary", render=False
        )
        in_use = max(len(filled), MIN_ROWS)
        count = gr.State(in_use)
        rows = tuple(
            _create_row(place, filled[place] if place < len(filled) else EMPTY_ROW, visible=place < in_use)
            for place in range(LIMITS.rows)
        )
        summary.render()
        with gr.Row(elem_classes="at-buttons"):
            add = gr.Button(text.teach.ADD_ROW, size="sm", elem_id="add-class")
            archive = components.folder_or_zip(name="lesson")
        created = cls(count, summary, rows)
        created._wire(add, archive, alert)
        return created

    @property
    def inputs(self) -> set[gr.components.Component]:
        """What `read` needs of an event's inputs."""
        return {component for row in self.rows for component in (row.name, row.images)}

    @property
    def outputs(self) -> list[Any]:
        """What `fill` updates."""
        groups = [row.group for row in self.rows]
        return [self.count, self.summary, *groups, *self.inputs]

    def read(self, values: Values) -> tuple[ClassRow, ...]:
        """All rows, empty ones included."""
        return tuple(ClassRow(values[row.name] or "", paths_in(values[row.images])) for row in self.rows)

    def fill(self, rows: Sequence[ClassRow], *, at_least: int = MIN_ROWS) -> Updates:
        """Show these rows, and empty ones up to `at_least`."""
        padded = [*rows, *[EMPTY_ROW] * LIMITS.rows][: LIMITS.rows]
        updates: Updates = {self.summary: views.render_note(_summary(rows))}
        updates |= self._show(max(len(rows), at_least))
        for row, filled in zip(self.rows, padded, strict=True):
            updates |= {row.name: filled.name, row.images: list(filled.paths) or None}
        return updates

    def _show(self, count: int) -> Updates:
        """Show the first `count` rows, within the bounds."""
        count = min(max(count, MIN_ROWS), LIMITS.rows)
        visible = {row.group: gr.update(visible=place < count) for place, row in enumerate(self.rows)}
        return {self.count: count, **visible}

    def _wire(self, add: gr.Button, archive: gr.UploadButton, alert: gr.HTML) -> None:
        def on_add(count: int) -> Updates:
            return self._show(count + 1)

        def on_change(values: Values) -> Updates:
            return {self.summary: views.render_note(_summary(self.read(values)))}

        def on_zip(path: str) -> Updates:
            try:
                rows = _unpack(path, self.rows[0].images)
            except Exception as error:
                return {alert: views.render_alert(user_message(error))}
            return {alert: views.EMPTY, **self.fill(rows)}

        add.click(on_add, [self.count], [self.count, *(row.group for row in self.rows)], **QUICK)
        for place, row in enumerate(self.rows):
            row.remove.click(self._remove(place), {self.count, *self.inputs}, self.outputs, **QUICK)
        archive.upload(on_zip, [archive], [alert, *self.outputs], queue=False, **PRIVATE)
        changes = [*(row.images.change for row in self.rows), *(row.name.blur for row in self.rows)]
        gr.on(changes, on_change, self.inputs, [self.summary], trigger_mode="always_last", **QUICK)

    def _remove(self, place: int) -> Callable[[Values], Updates]:
        def on_remove(values: Values) -> Updates:
            rows, left = list(self.read(values)), values[self.count] - 1
            del rows[place]
            return self.fill(rows[:left], at_least=left)

        return on_remove


def _create_row(place: int, row: ClassRow, *, visible: bool) -> _RowComponents:
    with gr.Row(visible=visible, elem_classes="at-class", elem_id=f"class-{place + 1}") as group:
        with gr.Column(scale=2, min_width=110, elem_classes="at-class-name"):
            placeholders = text.teach.CLASS_PLACEHOLDERS
            name = gr.Textbox(
                row.name,
                label=text.teach.class_label(place + 1),
                placeholder=placeholders[place % len(placeholders)],
                max_lines=1,
            )
            remove = gr.Button(text.teach.remove_label(place + 1), size="sm", elem_classes="at-remove")
        images = components.class_gallery(row.paths, place + 1)
    return _RowComponents(group, name, images, remove)


def _summary(rows: Sequence[ClassRow]) -> str:
    counts = [
        (atlas.tidy_name(row.name) or text.teach.class_label(place), len(row.paths))
        for place, row in enumerate(rows, start=1)
        if row.paths
    ]
    return text.teach.rows_summary(counts) if counts else text.teach.ZIP_HELP


def _unpack(archive: str, gallery: gr.Gallery) -> list[ClassRow]:
    """The rows of a zip; all galleries share one folder of Gradio's for their images."""
    with TemporaryDirectory() as folder:
        return [
            ClassRow(row.name, tuple(components.copy_to_cache(gallery, path) for path in row.paths))
            for row in unpack_classes(archive, Path(folder))
        ]
