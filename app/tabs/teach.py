"""The state in which a visitor teaches: the first screen, classes with their images, images without labels.

What a run brings is shown where it can be tried (`tabs.trying`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import text, views
from app.events import DEVICE, PRIVATE, QUICK, UNCHANGED, Updates, Values, long_run, user_message
from app.examples import FEW_SHOT_EXAMPLES
from app.handlers.few_shot import FewShotRequest, adapt_few_shot
from app.handlers.home import HomeExample
from app.handlers.settings import (
    METHODS,
    FewShotSettings,
    few_shot_from_query,
    model_mismatch,
    read_templates,
    show_templates,
    unlabelled_from_query,
)
from app.handlers.unlabelled import adapt_unlabelled
from app.handlers.uploads import ClassRow
from app.limits import LIMITS
from app.prepared_examples import load_few_shot
from app.session import CurrentModel, Runs
from app.shares import Shares
from app.tabs import components
from app.tabs.class_rows import ClassRows
from app.tabs.galleries import files_in
from app.tabs.result import ResultSide
from app.tabs.sharing import QUERY, open_shared
from app.tabs.trying import TryTab
from app.tabs.unlabelled import UnlabelledForm

__all__ = ["TEACH", "TRY", "FewShotSettingsForm", "TeachTab"]

TEACH, TRY = "teach", "try"  # the page's two states, as its tabs are called
LABELLED, UNLABELLED = "labelled", "unlabelled"


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
    """Classes with their images, and how to learn from them."""

    rows: ClassRows
    settings: FewShotSettingsForm
    start: gr.Button

    @classmethod
    def create(cls, alert: gr.HTML) -> _TeachForm:
        rows = ClassRows.create([], alert)
        settings = FewShotSettingsForm.create()
        with gr.Row(elem_classes="at-sticky"):
            start = components.start_button(text.teach.START, name="adapt")
        return cls(rows, settings, start)

    @property
    def inputs(self) -> set[gr.components.Component]:
        return {*self.settings.components, *self.rows.inputs}


@dataclass(frozen=True)
class TeachTab:
    """What the visitor gives to learn from: classes, or images without labels; and the first screen."""

    home: gr.Column
    forms: gr.Column
    own: gr.Button
    back: gr.Button
    examples: gr.HTML
    labels: gr.Radio
    labelled_column: gr.Column
    unlabelled_column: gr.Column
    form: _TeachForm
    unlabelled: UnlabelledForm
    alert: gr.HTML

    @classmethod
    def create(cls, story: HomeExample | None) -> TeachTab:
        """Lay it out inside the current Blocks; it opens on the first screen, which tells `story`."""
        words = text.teach
        with gr.Column(elem_id="home", elem_classes="at-home") as home:
            components.html_area(views.render_home(story) if story else views.EMPTY, name="story")
            own = gr.Button(text.home.START, variant="primary", elem_id="own", elem_classes="at-start")
            examples = components.example_row(
                views.render_few_shot_examples(FEW_SHOT_EXAMPLES), name="lessons"
            )
        with gr.Column(visible=False, elem_id="forms") as forms:
            with gr.Row(elem_classes="at-form-head"):
                labels = gr.Radio(
                    [(words.LABELLED, LABELLED), (words.UNLABELLED, UNLABELLED)],
                    value=LABELLED,
                    label=words.LABELS_LABEL,
                    info=words.LABELS_HELP,
                    elem_id="labels",
                )
                back = gr.Button(words.BACK, size="sm", elem_id="back", elem_classes="at-quiet")
            alert = components.html_area(name="teach-alert")
            with gr.Column(elem_id="labelled", elem_classes="at-plain") as labelled_column:
                form = _TeachForm.create(alert)
            with gr.Column(visible=False, elem_id="unlabelled", elem_classes="at-plain") as unlabelled_column:
                unlabelled = UnlabelledForm.create(alert)
        return cls(
            home,
            forms,
            own,
            back,
            examples,
            labels,
            labelled_column,
            unlabelled_column,
            form,
            unlabelled,
            alert,
        )

    def show_form(self, labels: str = LABELLED) -> Updates:
        """The form for labelled images, or for those without labels, in place of the first screen."""
        return {
            self.home: gr.update(visible=False),
            self.forms: gr.update(visible=True),
            self.labels: labels,
            **self.show_labels(labels),
        }

    def show_labels(self, labels: str | None) -> Updates:
        """The form that belongs to a choice."""
        return {
            self.labelled_column: gr.update(visible=labels != UNLABELLED),
            self.unlabelled_column: gr.update(visible=labels == UNLABELLED),
        }

    @property
    def form_outputs(self) -> list[gr.blocks.Block]:
        """What `show_form` updates."""
        return [self.home, self.forms, self.labels, self.labelled_column, self.unlabelled_column]

    def wire(
        self,
        page: gr.Blocks,
        tabs: gr.Tabs,
        current: CurrentModel,
        runs: Runs,
        trying: TryTab,
        *,
        shares: Shares,
    ) -> None:
        """Let its buttons teach; what comes of it is shown by `trying`, one of `tabs`."""
        self._wire_labelled(tabs, current, runs, trying)
        self._wire_unlabelled(tabs, current, runs, trying)
        self._wire_examples(tabs, current, trying)
        self._wire_links(page, current)
        _wire_shared(page, tabs, current, trying, shares)

    def _wire_labelled(self, tabs: gr.Tabs, current: CurrentModel, runs: Runs, trying: TryTab) -> None:
        form, side = self.form, trying.side

        def read(values: Values) -> FewShotRequest:
            return FewShotRequest(form.rows.read(values), files_in(values[trying.samples]))

        @long_run
        def on_adapt(request: gr.Request, values: Values) -> Iterator[Updates]:
            turned = False
            try:
                wanted, turned = read(values), True
                engine, settings = current.engine(), form.settings.read(values)
                with runs.begin(request.session_hash) as stop_signal:
                    for progress in adapt_few_shot(engine, wanted, settings, stop_signal=stop_signal):
                        yield {trying.learn_again: gr.update(visible=False), **side.show_progress(progress)}
            except Exception as error:  # the border: a visitor gets a sentence, whatever happened
                yield self._show_refusal(tabs, side, user_message(error), values, turned=turned)

        inputs = {*side.state.components, trying.samples, *form.inputs}
        self._start(
            gr.on([form.start.click, trying.learn_again.click], **self._check(tabs, read, inputs)),
            on_adapt,
            inputs,
            [*self._run_outputs(tabs, side), trying.learn_again],
            trying,
        )

    def _wire_unlabelled(self, tabs: gr.Tabs, current: CurrentModel, runs: Runs, trying: TryTab) -> None:
        form, side = self.unlabelled, trying.side

        @long_run
        def on_adapt_unlabelled(request: gr.Request, values: Values) -> Iterator[Updates]:
            turned = False
            try:
                wanted, turned = form.read(values), True
                engine, settings = current.engine(), form.read_settings(values)
                with runs.begin(request.session_hash) as stop_signal:
                    for progress in adapt_unlabelled(engine, wanted, settings, stop_signal=stop_signal):
                        yield side.show_progress(progress)
            except Exception as error:
                yield self._show_refusal(tabs, side, user_message(error), values, turned=turned)

        inputs = {*side.state.components, *form.inputs}
        check = self._check(tabs, form.read, inputs)
        outputs = self._run_outputs(tabs, side)
        pressed = gr.on([form.start.click, form.names.submit], **check)
        for checked in (pressed, form.wire_examples(self.alert).then(**check)):
            self._start(checked, on_adapt_unlabelled, inputs, outputs, trying)

    def _wire_examples(self, tabs: gr.Tabs, current: CurrentModel, trying: TryTab) -> None:
        form, side = self.form, trying.side

        def on_example(event: gr.EventData, values: Values) -> Updates:
            try:
                example = FEW_SHOT_EXAMPLES[int(event.example)]
                result = load_few_shot(current.engine(), example)
            except Exception as error:
                return self._show_refusal(tabs, side, user_message(error), values, turned=True)
            return {
                **self.show_form(),
                **form.rows.fill(example.request.rows),
                tabs: gr.update(selected=TRY),
                **side.show_result(result),
            }

        def on_own() -> Updates:
            """An empty form: the example goes, with its images and its result."""
            return {**self.show_form(), **form.rows.fill([]), **side.clear()}

        def on_back() -> Updates:
            return {self.home: gr.update(visible=True), self.forms: gr.update(visible=False)}

        shown = self.examples.click(
            on_example,
            side.state.components,
            [tabs, self.alert, *self.form_outputs, *form.rows.outputs, *side.outputs],
            show_progress="minimal",
            show_progress_on=[self.examples, side.run],
            **PRIVATE,
            **DEVICE,
        )
        side.then_show_panels(shown)
        emptied = self.own.click(
            on_own,
            None,
            [*self.form_outputs, *form.rows.outputs, *side.outputs],
            **QUICK,
        )
        for event in (shown, emptied):
            trying.fill_after(event)
        side.then_show_panels(emptied)
        self.back.click(on_back, None, [self.home, self.forms], **QUICK)
        self.labels.input(
            self.show_labels, [self.labels], [self.labelled_column, self.unlabelled_column], **QUICK
        )

    def _wire_links(self, page: gr.Blocks, current: CurrentModel) -> None:
        form, unlabelled = self.form, self.unlabelled

        def on_load(request: gr.Request) -> Updates:
            """Class names and settings from the page's address, if it has any, and a word on its model."""
            pairs = request.query_params.multi_items()
            notice = views.render_notice(model_mismatch(pairs, current.name()))
            names, settings = few_shot_from_query(pairs)
            if names:
                rows = [ClassRow(name, ()) for name in names]
                filled = {**form.rows.fill(rows), **form.settings.fill(settings)}
                return {**self.show_form(), **filled, self.alert: notice}
            words, unlabelled_settings = unlabelled_from_query(pairs)
            if words:
                filled = unlabelled.fill(words, unlabelled_settings)
                return {**self.show_form(UNLABELLED), **filled, self.alert: notice}
            return UNCHANGED

        filled = [*form.rows.outputs, *form.settings.components, *unlabelled.filled]
        page.load(on_load, None, [self.alert, *self.form_outputs, *filled], **QUICK)

    # ---- what a run shares

    def _check(self, tabs: gr.Tabs, read: Callable[[Values], object], inputs: set[Any]) -> dict[str, Any]:
        """The event before a run: what cannot be learned is told at once, else the page turns to Try."""

        def on_check(values: Values) -> Updates:
            try:
                read(values)
            except Exception as error:
                return {self.alert: views.render_alert(user_message(error))}
            return {self.alert: views.EMPTY, tabs: gr.update(selected=TRY)}

        return {"fn": on_check, "inputs": inputs, "outputs": [self.alert, tabs], **QUICK}

    def _start(
        self,
        checked: Any,  # noqa: ANN401 - Gradio's dependency
        adapt: Callable[..., Iterator[Updates]],
        inputs: set[Any],
        outputs: list[Any],
        trying: TryTab,
    ) -> None:
        """Run `adapt` after a check; then show all panels, and answer what was dropped meanwhile."""
        adapted = checked.then(
            adapt,
            inputs,
            outputs,
            show_progress="minimal",
            show_progress_on=trying.side.run,
            **PRIVATE,
            **DEVICE,
        )
        trying.side.then_show_panels(adapted)
        trying.answer_after(adapted)

    def _run_outputs(self, tabs: gr.Tabs, side: ResultSide) -> list[Any]:
        return [tabs, self.alert, *side.outputs]

    def _show_refusal(
        self, tabs: gr.Tabs, side: ResultSide, message: str, values: Values, *, turned: bool
    ) -> Updates:
        """The sentence beside what the visitor gave, which is where it can be mended.

        `turned` says whether the check before has turned the page to Try; it is turned back then, and else
        left where the visitor is by now.
        """
        back = {tabs: gr.update(selected=TEACH)} if turned else {}
        alerts = {side.alert: views.EMPTY, self.alert: views.render_alert(message)}
        return {**side.show_refusal(message, values), **alerts, **back}


def _wire_shared(
    page: gr.Blocks, tabs: gr.Tabs, current: CurrentModel, trying: TryTab, shares: Shares
) -> None:
    """Open the page on the classifier that its address names, ready to try."""

    def on_shared(request: gr.Request) -> Updates:
        name = request.query_params.get(QUERY)
        if not name:
            return UNCHANGED
        try:
            shown = trying.side.show_result(open_shared(current, shares, name))
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            shown = {trying.side.alert: views.render_alert(user_message(error))}
        return {tabs: gr.update(selected=TRY), **shown}

    def on_shared_images(request: gr.Request) -> Updates:
        """The images of the worked example go: they are of other classes."""
        return {trying.samples: None} if request.query_params.get(QUERY) else UNCHANGED

    opened = page.load(on_shared, None, [tabs, *trying.side.outputs], **QUICK)
    opened.then(on_shared_images, None, [trying.samples], **QUICK)
    trying.side.then_show_panels(opened)
