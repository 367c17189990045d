"""The tab that needs no labels: images and class names in, a model adapted to them out.

Left what the visitor gives, right the result as on the tab that learns from labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import gradio as gr

from app import text, views
from app.events import DEVICE, PRIVATE, QUICK, UNCHANGED, Updates, Values, long_run, user_message
from app.examples import UNLABELLED_EXAMPLES
from app.handlers.ask import split_class_names
from app.handlers.settings import (
    ALL_PRESENT,
    OBJECTIVES,
    UnlabelledSettings,
    model_mismatch,
    read_templates,
    show_templates,
    unlabelled_from_query,
)
from app.handlers.unlabelled import UnlabelledRequest, adapt_unlabelled
from app.limits import LIMITS
from app.session import CurrentModel, Runs
from app.tabs import components
from app.tabs.galleries import files_in, fill_from_zip, items_of
from app.tabs.result import ResultSide

__all__ = ["TAB_ID", "unlabelled_tab"]

TAB_ID = "unlabelled"
PREFIX = "roll-"  # of the names of this tab's parts


@dataclass(frozen=True)
class _UnlabelledForm:
    """The left side: what the visitor gives."""

    images: gr.Gallery
    names: gr.Textbox
    all_present: gr.Checkbox
    objective: gr.Dropdown
    seed: gr.Number
    templates: gr.Dropdown
    start: gr.Button
    alert: gr.HTML

    @classmethod
    def create(cls) -> _UnlabelledForm:
        words = text.unlabelled
        components.html_area(
            views.render_lead(words.IMAGES_HEADING, words.IMAGES_HELP), name="roll-photos-lead"
        )
        images = components.unlabelled_gallery()
        with gr.Row(elem_classes="at-buttons"):
            archive = components.folder_or_zip(name="roll")
        components.html_area(views.render_note(words.ZIP_HELP), name="roll-zip-help")
        components.html_area(views.render_heading(words.NAMES_HEADING), name="roll-names-lead")
        names = components.class_names_box(name="roll-names")
        all_present = gr.Checkbox(
            label=words.ALL_PRESENT_LABEL, info=words.ALL_PRESENT_HELP, elem_id="roll-every"
        )
        with gr.Accordion(text.page.SETTINGS, open=False, elem_id="roll-settings"):
            objective = gr.Dropdown(
                [(words.METHOD_NAMES[one], one) for one in OBJECTIVES],
                value=UnlabelledSettings().objective,
                label=text.page.METHOD_LABEL,
                info=words.METHOD_HELP,
            )
            seed = components.seed_box()
            templates = components.templates_box(name="roll-templates")
        start = components.start_button(text.teach.START, name="roll-adapt")
        alert = components.html_area(name="roll-alert")
        fill_from_zip(archive, images, alert)
        return cls(images, names, all_present, objective, seed, templates, start, alert)

    @property
    def inputs(self) -> set[gr.components.Component]:
        return {self.images, self.names, self.objective, self.seed, self.templates}

    def read(self, values: Values) -> UnlabelledRequest:
        return UnlabelledRequest(files_in(values[self.images]), split_class_names(values[self.names] or ""))

    def read_settings(self, values: Values) -> UnlabelledSettings:
        templates = read_templates(values[self.templates])
        return UnlabelledSettings(values[self.objective], int(values[self.seed] or 0), templates)


def unlabelled_tab(
    page: gr.Blocks, tabs: gr.Tabs, current: CurrentModel, runs: Runs, *, own_bank: bool
) -> ResultSide:
    """Lay out the tab inside the current Blocks, as one of `tabs`; a link may open the page on it."""
    components.html_area(views.render_note(text.unlabelled.LEAD), name="roll-lead")
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=4, min_width=320):
            examples = components.example_row(
                views.render_unlabelled_examples(UNLABELLED_EXAMPLES), name="rolls"
            )
            form = _UnlabelledForm.create()
        side = ResultSide.create(
            current, runs, form.alert, own_bank=own_bank, defaults=UnlabelledSettings(), prefix=PREFIX
        )

    @long_run
    def on_adapt(request: gr.Request, values: Values) -> Iterator[Updates]:
        try:
            engine = current.engine()
            wanted, settings = form.read(values), form.read_settings(values)
            with runs.begin(request.session_hash) as stop_signal:
                for progress in adapt_unlabelled(engine, wanted, settings, stop_signal=stop_signal):
                    yield side.show_progress(progress)
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            yield side.show_refusal(user_message(error), values)

    def on_example(event: gr.EventData) -> Updates:
        example = UNLABELLED_EXAMPLES[int(event.example)]
        names = ", ".join(example.classes)
        return {form.alert: views.EMPTY, form.images: items_of(example.images), form.names: names}

    def on_load(request: gr.Request) -> Updates:
        """Names and settings from the page's address, if it has any; then the page opens on this tab."""
        pairs = request.query_params.multi_items()
        names, settings = unlabelled_from_query(pairs)
        if not names:
            return UNCHANGED
        return {
            tabs: gr.update(selected=TAB_ID),
            form.names: ", ".join(names),
            form.all_present: settings.objective == ALL_PRESENT,
            form.objective: settings.objective,
            form.seed: settings.seed,
            form.templates: show_templates(settings),
            form.alert: views.render_notice(model_mismatch(pairs, current.name())),
        }

    filled = examples.click(on_example, None, [form.alert, form.images, form.names], **PRIVATE, queue=False)
    for begin in (form.start.click, form.names.submit, filled.then):
        adapted = begin(
            on_adapt,
            {*side.state.components, *form.inputs},
            side.outputs,
            show_progress="minimal",
            show_progress_on=side.run,
            **PRIVATE,
            **DEVICE,
        )
        side.then_show_panels(adapted)
    side.bring_recipe(form.images, most=LIMITS.samples)
    form.all_present.input(
        lambda known: ALL_PRESENT if known else OBJECTIVES[0], form.all_present, form.objective, **QUICK
    )
    form.objective.input(lambda name: name == ALL_PRESENT, form.objective, form.all_present, **QUICK)
    page.load(
        on_load,
        None,
        [tabs, form.names, form.all_present, form.objective, form.seed, form.templates, form.alert],
        **QUICK,
    )
    return side
