"""The first tab: classes and images in, an adapted model out, with everything one may see of it.

Left what the visitor gives, right the result: compare, look inside, take away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import gradio as gr

import atlas_engine as atlas
from app import text, views
from app.events import DEVICE, PRIVATE, QUICK, UNCHANGED, Updates, Values, long_run, user_message
from app.examples import FEW_SHOT_EXAMPLES
from app.handlers.few_shot import FewShotRequest, adapt_few_shot
from app.handlers.settings import (
    METHODS,
    FewShotSettings,
    few_shot_from_query,
    model_mismatch,
    read_templates,
    show_templates,
)
from app.handlers.uploads import ClassRow
from app.limits import LIMITS
from app.prepared_examples import RECIPE, load_few_shot
from app.session import CurrentModel, Runs
from app.tabs import components
from app.tabs.class_rows import ClassRows
from app.tabs.galleries import files_in, fill_from_zip, items_of
from app.tabs.result import ResultSide

__all__ = ["teach_tab"]


@dataclass(frozen=True)
class FewShotSettingsForm:
    """The advanced settings, closed; help and ranges are the engine's own."""

    method: gr.Dropdown
    steps: gr.Slider
    lr: gr.Number
    seed: gr.Number
    templates: gr.Dropdown

    @classmethod
    def create(cls) -> FewShotSettingsForm:
        """Lay it out inside the current Blocks."""
        rules = {rule.name: rule for rule in atlas.describe(atlas.FewShotConfig)}
        method_names = [(text.teach.METHOD_NAMES[method], method) for method in METHODS]
        usual = FewShotSettings()
        with gr.Accordion(text.page.SETTINGS, open=False, elem_id="settings"):
            method = gr.Dropdown(
                method_names, value=usual.method, label=text.page.METHOD_LABEL, info=text.teach.METHOD_HELP
            )
            steps = gr.Slider(
                1,
                LIMITS.steps,
                usual.steps,
                step=1,
                label=text.page.STEPS_LABEL,
                info=text.page.capitalized(rules["steps"].help),
            )
            lr = gr.Number(
                usual.lr,
                label=text.page.LR_LABEL,
                info=text.page.capitalized(rules["lr"].help),
                minimum=0,
                maximum=10,
                step=0.01,
            )
            seed = components.seed_box()
            templates = components.templates_box(name="templates")
        return cls(method, steps, lr, seed, templates)

    @property
    def components(self) -> set[gr.components.Component]:
        """What `read` needs of an event's inputs, and `fill` of its outputs."""
        return {self.method, self.steps, self.lr, self.seed, self.templates}

    def read(self, values: Values) -> FewShotSettings:
        """The settings; a number that was emptied has its default."""
        lr = values[self.lr]
        return FewShotSettings(
            method=values[self.method],
            steps=int(values[self.steps]),
            lr=FewShotSettings.lr if lr is None else float(lr),
            seed=int(values[self.seed] or 0),
            templates=read_templates(values[self.templates]),
        )

    def fill(self, settings: FewShotSettings) -> Updates:
        """Show these settings."""
        return {
            self.method: settings.method,
            self.steps: settings.steps,
            self.lr: settings.lr,
            self.seed: settings.seed,
            self.templates: show_templates(settings),
        }


@dataclass(frozen=True)
class _TeachForm:
    """The left side: what the visitor gives."""

    rows: ClassRows
    samples: gr.Gallery
    settings: FewShotSettingsForm
    alert: gr.HTML
    start: gr.Button

    @classmethod
    def create(cls, request: FewShotRequest) -> _TeachForm:
        components.html_area(
            views.render_lead(text.teach.CLASSES_HEADING, text.teach.CLASSES_LEAD), name="classes-lead"
        )
        alert = components.html_area(name="teach-alert")
        rows = ClassRows.create(request.rows, alert)
        components.html_area(
            views.render_lead(text.teach.SAMPLES_HEADING, text.teach.SAMPLES_ZIP_HELP), name="samples-lead"
        )
        samples = components.samples_gallery(items_of(request.samples))
        with gr.Row(elem_classes="at-buttons"):
            archive = components.folder_or_zip(name="samples")
        fill_from_zip(archive, samples, alert)
        settings = FewShotSettingsForm.create()
        start = components.start_button(text.teach.START, name="adapt")
        return cls(rows, samples, settings, alert, start)

    @property
    def inputs(self) -> set[gr.components.Component]:
        return {self.samples, *self.settings.components, *self.rows.inputs}

    @property
    def filled(self) -> list[gr.blocks.Block]:
        """What `fill` updates."""
        return [*self.rows.outputs, self.samples]

    def read(self, values: Values) -> FewShotRequest:
        return FewShotRequest(self.rows.read(values), files_in(values[self.samples]))

    def fill(self, request: FewShotRequest) -> Updates:
        return {**self.rows.fill(request.rows), self.samples: items_of(request.samples)}

    def clear(self, names: tuple[str, ...] = ()) -> Updates:
        """Rows with these names, and no image."""
        return {**self.rows.fill([ClassRow(name, ()) for name in names]), self.samples: None}


def teach_tab(page: gr.Blocks, current: CurrentModel, runs: Runs, *, own_bank: bool) -> ResultSide:
    """Lay out the tab inside the current Blocks; it opens on the first worked example."""
    first = FEW_SHOT_EXAMPLES[0]
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=4, min_width=320):
            examples = components.example_row(
                views.render_few_shot_examples(FEW_SHOT_EXAMPLES), name="lessons"
            )
            components.html_area(views.render_jump("result"), name="jump")
            own = gr.Button(text.teach.OWN, elem_id="own")
            form = _TeachForm.create(first.request)
        side = ResultSide.create(
            current,
            runs,
            form.alert,
            own_bank=own_bank,
            defaults=FewShotSettings(),
            example=load_few_shot(current.engine(), first),
            file=first.path / RECIPE,
        )

    @long_run
    def on_adapt(request: gr.Request, values: Values) -> Iterator[Updates]:
        try:
            engine = current.engine()
            settings, wanted = form.settings.read(values), form.read(values)
            with runs.begin(request.session_hash) as stop_signal:
                for progress in adapt_few_shot(engine, wanted, settings, stop_signal=stop_signal):
                    yield side.show_progress(progress)
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            yield side.show_refusal(user_message(error), values)

    def on_example(event: gr.EventData, values: Values) -> Updates:
        try:
            example = FEW_SHOT_EXAMPLES[int(event.example)]
            result = load_few_shot(current.engine(), example)
        except Exception as error:
            return side.show_refusal(user_message(error), values)
        return {**form.fill(example.request), **side.show_result(result)}

    def on_load(request: gr.Request) -> Updates:
        """Class names and settings from the page's address, if it has any, and a word on its model."""
        pairs = request.query_params.multi_items()
        names, settings = few_shot_from_query(pairs)
        if not names:
            return UNCHANGED
        notice = views.render_notice(model_mismatch(pairs, current.name()))
        return {**form.clear(names), **form.settings.fill(settings), form.alert: notice}

    adapted = form.start.click(
        on_adapt,
        {*side.state.components, *form.inputs},
        side.outputs,
        show_progress="minimal",
        show_progress_on=side.run,
        **PRIVATE,
        **DEVICE,
    )
    side.then_show_panels(adapted)
    side.bring_recipe(form.samples)
    shown = examples.click(
        on_example,
        side.state.components,
        [*form.filled, *side.outputs],
        show_progress="minimal",
        show_progress_on=[examples, side.run],
        **PRIVATE,
        **DEVICE,
    )
    side.then_show_panels(shown)
    own.click(form.clear, None, form.filled, **QUICK)
    page.load(on_load, None, [*form.filled, *form.settings.components, form.alert], **QUICK)
    return side
