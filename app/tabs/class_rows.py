"""The classes to learn, on the page: a card each, with a name, a count and a drop zone.

All cards exist from the start and most are hidden, so that every event names the same components. The cards
in use are always the first ones: removing one moves the rest up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import text, views
from app.events import PRIVATE, QUICK, UNCHANGED, UNPACK, Updates, Values, user_message
from app.handlers.uploads import ClassRow, unpack_classes
from app.limits import LIMITS
from app.tabs import components
from app.tabs.galleries import paths_in

__all__ = ["ClassRows"]

MIN_ROWS = 2
EMPTY_ROW = ClassRow("", ())


@dataclass(frozen=True)
class _Card:
    group: gr.Column
    name: gr.Textbox
    count: gr.HTML
    images: gr.Gallery
    remove: gr.Button


@dataclass(frozen=True)
class ClassRows:
    """The components of all cards, and how they are read and filled."""

    count: gr.State  # cards in use
    summary: gr.HTML  # classes and images, counted
    rows: tuple[_Card, ...]

    @classmethod
    def create(cls, filled: Sequence[ClassRow], alert: gr.HTML) -> ClassRows:
        """Lay out the cards, filled with these, and wire them; `alert` tells of a bad zip."""
        in_use = max(len(filled), MIN_ROWS)
        count = gr.State(in_use)
        with gr.Row(elem_classes="at-classes"):
            rows = tuple(
                _create_card(
                    place, filled[place] if place < len(filled) else EMPTY_ROW, visible=place < in_use
                )
                for place in range(LIMITS.rows)
            )
        with gr.Row(elem_classes="at-buttons"):
            add = gr.Button(text.teach.ADD_ROW, size="sm", elem_id="add-class")
            archive = components.folder_or_zip(name="lesson")
        summary = components.html_area(views.render_note(_summary(filled)), name="lesson-summary")
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
        return [self.count, self.summary, *(row.count for row in self.rows), *groups, *self.inputs]

    def read(self, values: Values) -> tuple[ClassRow, ...]:
        """All cards, empty ones included."""
        return tuple(ClassRow(values[row.name] or "", paths_in(values[row.images])) for row in self.rows)

    def fill(self, rows: Sequence[ClassRow], *, at_least: int = MIN_ROWS) -> Updates:
        """Show these classes, and empty ones up to `at_least`."""
        padded = [*rows, *[EMPTY_ROW] * LIMITS.rows][: LIMITS.rows]
        updates = {**self._tell_counts(padded), **self._show(max(len(rows), at_least))}
        for row, filled in zip(self.rows, padded, strict=True):
            updates |= {row.name: filled.name, row.images: list(filled.paths) or None}
        return updates

    def _tell_counts(self, rows: Sequence[ClassRow]) -> Updates:
        updates: Updates = {self.summary: views.render_note(_summary(rows))}
        for card, row in zip(self.rows, rows, strict=True):
            updates[card.count] = views.render_count(len(row.paths))
        return updates

    def _show(self, count: int) -> Updates:
        """Show the first `count` cards, within the bounds."""
        count = min(max(count, MIN_ROWS), LIMITS.rows)
        visible = {row.group: gr.update(visible=place < count) for place, row in enumerate(self.rows)}
        return {self.count: count, **visible}

    def _wire(self, add: gr.Button, archive: gr.UploadButton, alert: gr.HTML) -> None:
        def on_add(count: int) -> Updates:
            return self._show(count + 1)

        def on_images(images: Any) -> str:  # noqa: ANN401 - a gallery's value
            """One card's count, from its own images: the others may not be on the page yet."""
            return views.render_count(len(paths_in(images)))

        def on_change(values: Values) -> str:
            return views.render_note(_summary(self.read(values)))

        def on_move(event: gr.EventData, values: Values) -> Updates:
            """An image was dragged from one card to another."""
            rows = list(self.read(values))
            source, index, target = int(event.source) - 1, int(event.index), int(event.into) - 1
            if not all(0 <= place < values[self.count] for place in (source, target)):
                return UNCHANGED
            if source == target or not 0 <= index < len(rows[source].paths):
                return UNCHANGED
            paths = list(rows[source].paths)
            moved = paths.pop(index)
            rows[source] = replace(rows[source], paths=tuple(paths))
            rows[target] = replace(rows[target], paths=(*rows[target].paths, moved))
            return self.fill(rows[: values[self.count]], at_least=values[self.count])

        def on_zip(path: str) -> Updates:
            try:
                rows = _unpack(path, self.rows[0].images)
            except Exception as error:
                return {alert: views.render_alert(user_message(error))}
            return {alert: views.EMPTY, **self.fill(rows)}

        mover = components.image_mover()
        mover.submit(on_move, {self.count, *self.inputs}, self.outputs, **QUICK)
        add.click(on_add, [self.count], [self.count, *(row.group for row in self.rows)], **QUICK)
        for place, row in enumerate(self.rows):
            row.remove.click(self._remove(place), {self.count, *self.inputs}, self.outputs, **QUICK)
        archive.upload(on_zip, [archive], [alert, *self.outputs], **UNPACK, **PRIVATE)
        for row in self.rows:
            counted = row.images.change(on_images, row.images, row.count, trigger_mode="always_last", **QUICK)
            counted.then(on_change, self.inputs, self.summary, **QUICK)
        names = [row.name.blur for row in self.rows]
        gr.on(names, on_change, self.inputs, self.summary, trigger_mode="always_last", **QUICK)

    def _remove(self, place: int) -> Callable[[Values], Updates]:
        def on_remove(values: Values) -> Updates:
            rows, left = list(self.read(values)), values[self.count] - 1
            del rows[place]
            return self.fill(rows[:left], at_least=left)

        return on_remove


def _create_card(place: int, row: ClassRow, *, visible: bool) -> _Card:
    number = place + 1
    with gr.Column(
        visible=visible, elem_classes="at-class", elem_id=f"class-{number}", min_width=260
    ) as group:
        with gr.Row(elem_classes="at-class-head"):
            placeholders = text.teach.CLASS_PLACEHOLDERS
            name = gr.Textbox(
                row.name,
                label=text.teach.class_label(number),
                placeholder=placeholders[place % len(placeholders)],
                max_lines=1,
                elem_classes="at-class-name",
            )
            count = components.html_area(views.render_count(len(row.paths)), name=f"count-{number}")
            remove = gr.Button(text.teach.remove_label(number), size="sm", elem_classes="at-remove")
        images = components.class_gallery(row.paths, number)
        recorder = views.render_recorder(str(images.elem_id), number)
        components.html_area(recorder, name=f"camera-{number}")
    return _Card(group, name, count, images, remove)


def _summary(rows: Sequence[ClassRow]) -> str:
    counts = [
        (atlas.tidy_name(row.name) or text.teach.class_label(place), len(row.paths))
        for place, row in enumerate(rows, start=1)
        if row.paths
    ]
    return text.teach.rows_summary(counts) if counts else text.teach.ZIP_HELP


def _unpack(archive: str, gallery: gr.Gallery) -> list[ClassRow]:
    """The classes of a zip; all galleries share one folder of Gradio's for their images."""
    with TemporaryDirectory() as folder:
        return [
            ClassRow(row.name, tuple(components.copy_to_cache(gallery, path) for path in row.paths))
            for row in unpack_classes(archive, Path(folder))
        ]
