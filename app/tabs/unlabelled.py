"""The form for images without labels: images and class names in, a model adapted to them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app import text, views
from app.events import PRIVATE, QUICK, Updates, Values
from app.examples import UNLABELLED_EXAMPLES
from app.handlers.ask import split_class_names
from app.handlers.settings import (
    ALL_PRESENT,
    OBJECTIVES,
    UnlabelledSettings,
    read_templates,
    show_templates,
)
from app.handlers.unlabelled import UnlabelledRequest
from app.tabs import components
from app.tabs.galleries import files_in, fill_from_zip, items_of

__all__ = ["UnlabelledForm"]


@dataclass(frozen=True)
class UnlabelledForm:
    """What the visitor gives, and how it is read and filled."""

    images: gr.Gallery
    names: gr.Textbox
    all_present: gr.Checkbox
    objective: gr.Dropdown
    seed: gr.Number
    templates: gr.Dropdown
    start: gr.Button
    examples: gr.HTML

    @classmethod
    def create(cls, alert: gr.HTML) -> UnlabelledForm:
        """Lay it out and wire what needs no model; `alert` tells of a bad zip."""
        words = text.unlabelled
        components.html_area(views.render_note(words.LEAD), name="unlabelled-lead")
        with gr.Row(elem_classes="at-columns"):
            with gr.Column(scale=6, min_width=320):
                components.html_area(
                    views.render_lead(words.IMAGES_HEADING, words.IMAGES_HELP), name="unlabelled-photos-lead"
                )
                images = components.unlabelled_gallery()
                with gr.Row(elem_classes="at-buttons"):
                    archive = components.folder_or_zip(name="unlabelled")
                components.html_area(views.render_note(words.ZIP_HELP), name="unlabelled-zip-help")
            with gr.Column(scale=5, min_width=320):
                components.html_area(views.render_heading(words.NAMES_HEADING), name="unlabelled-names-lead")
                names = components.class_names_box(name="unlabelled-names")
                all_present = gr.Checkbox(
                    label=words.ALL_PRESENT_LABEL, info=words.ALL_PRESENT_HELP, elem_id="unlabelled-every"
                )
                with gr.Accordion(text.page.SETTINGS, open=False, elem_id="unlabelled-settings"):
                    objective = gr.Dropdown(
                        [(words.METHOD_NAMES[one], one) for one in OBJECTIVES],
                        value=UnlabelledSettings().objective,
                        label=text.page.METHOD_LABEL,
                        info=words.METHOD_HELP,
                    )
                    seed = components.seed_box()
                    templates = components.templates_box(name="unlabelled-templates")
                examples = components.example_row(
                    views.render_unlabelled_examples(UNLABELLED_EXAMPLES), name="unlabelled-examples"
                )
        with gr.Row(elem_classes="at-sticky"):
            start = components.start_button(text.teach.START, name="unlabelled-adapt")
        fill_from_zip(archive, images, alert)
        all_present.input(
            lambda known: ALL_PRESENT if known else OBJECTIVES[0], all_present, objective, **QUICK
        )
        objective.input(lambda name: name == ALL_PRESENT, objective, all_present, **QUICK)
        return cls(images, names, all_present, objective, seed, templates, start, examples)

    @property
    def inputs(self) -> set[gr.components.Component]:
        """What `read` and `read_settings` need of an event's inputs."""
        return {self.images, self.names, self.objective, self.seed, self.templates}

    @property
    def filled(self) -> list[gr.components.Component]:
        """What `fill` updates."""
        return [self.names, self.all_present, self.objective, self.seed, self.templates]

    def read(self, values: Values) -> UnlabelledRequest:
        """The images and class names; an AtlasError where they will not do."""
        return UnlabelledRequest(files_in(values[self.images]), split_class_names(values[self.names] or ""))

    def read_settings(self, values: Values) -> UnlabelledSettings:
        """How to adapt to them."""
        templates = read_templates(values[self.templates])
        return UnlabelledSettings(values[self.objective], int(values[self.seed] or 0), templates)

    def fill(self, names: Sequence[str], settings: UnlabelledSettings) -> Updates:
        """Show these class names and settings."""
        return {
            self.names: ", ".join(names),
            self.all_present: settings.objective == ALL_PRESENT,
            self.objective: settings.objective,
            self.seed: settings.seed,
            self.templates: show_templates(settings),
        }

    def wire_examples(self, alert: gr.HTML) -> Any:  # noqa: ANN401 - Gradio's dependency
        """Let an example fill the form; returns the event, after which a run may follow."""

        def on_unlabelled_example(event: gr.EventData) -> Updates:
            example = UNLABELLED_EXAMPLES[int(event.example)]
            names = ", ".join(example.classes)
            return {alert: views.EMPTY, self.images: items_of(example.images), self.names: names}

        outputs = [alert, self.images, self.names]
        return self.examples.click(on_unlabelled_example, None, outputs, **PRIVATE, queue=False)
