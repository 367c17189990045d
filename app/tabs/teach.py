"""The first tab: classes and pictures in, an adapted model out, with everything one may see of it.

Left the lesson, right its result: compare, look inside, take away. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import alerts, cards, compare_cards, components, run_cards, text
from app.border import DEVICE, PRIVATE, QUICK, told
from app.examples import LESSONS
from app.handlers.choices import METHODS, Choices, from_query
from app.handlers.lesson import Lesson, Row, Sample, unpack
from app.handlers.takeaway import load_recipe
from app.handlers.teach import Taught, teach
from app.limits import LIMITS
from app.markup import heading, note
from app.state import Kept, Runs
from app.tabs.inside import inside_panel
from app.tabs.rows import ClassRows, GalleryItems, class_rows
from app.tabs.takeaway import take_panel
from app.worked import RECIPE, load_worked

__all__ = ["teach_tab"]

COMPARE = "compare"
SETTINGS = 4  # the advanced settings
Frame = list[Any]


@dataclass(frozen=True)
class _Form:
    """The left side: what the visitor gives."""

    rows: ClassRows
    samples: gr.Gallery
    settings: list[Any]
    alert: gr.HTML
    adapt: gr.Button
    stop: gr.Button

    @property
    def inputs(self) -> list[Any]:
        return [self.samples, *self.settings, *self.rows.inputs]


@dataclass(frozen=True)
class _Shown:
    """The right side: the run or its verdict, and the comparison."""

    run: gr.HTML
    tabs: gr.Tabs
    compare: gr.HTML

    @property
    def outputs(self) -> list[Any]:
        return [self.run, self.tabs, self.compare]


def teach_tab(page: gr.Blocks, engine: atlas.Atlas, runs: Runs, *, bundled: bool) -> None:
    """Lay out the tab inside the current Blocks; it opens on the first worked example."""
    opening = load_worked(engine, LESSONS[0])
    lesson = LESSONS[0].lesson
    kept = gr.State(opening, time_to_live=LIMITS.keep_seconds)
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=4, min_width=320):
            examples, own = _starts()
            form, sample_zip = _form(lesson)
        with gr.Column(scale=7, min_width=320, elem_id="result"):
            run = components.html_area(_headline(opening, example=True), name="run")
            with gr.Tabs(selected=COMPARE) as tabs:
                with gr.Tab(text.TAB_COMPARE, id=COMPARE):
                    compare = components.html_area(_compared(opening), name="compare")
                with gr.Tab(text.TAB_INSIDE, id="inside"):
                    inside = inside_panel(engine, kept, opening)
                with gr.Tab(text.TAB_TAKE, id="take"):
                    take = take_panel(engine, kept, opening, bundled=bundled, file=LESSONS[0].path / RECIPE)
    shown = _Shown(run, tabs, compare)

    def panels(result: Kept | None) -> Iterator[Frame]:
        """The other panels, once there is a result. Gradio keeps a copy of the recipe's file."""
        with TemporaryDirectory() as folder:
            yield [*inside.show(result), *take.show(result, Path(folder))]

    def then_panels(event: Any) -> None:  # noqa: ANN401 - Gradio's dependency
        event.then(panels, [kept], [*inside.outputs, *take.outputs], show_progress="hidden", **PRIVATE)

    outputs = [form.alert, *shown.outputs, kept, form.stop]
    then_panels(
        form.adapt.click(
            _adapting(engine, runs),
            [kept, *form.inputs],
            outputs,
            show_progress="minimal",
            show_progress_on=run,
            scroll_to_output=True,
            **PRIVATE,
            **DEVICE,
        )
    )
    form.stop.click(_stopping(runs), None, [form.stop], **QUICK)
    then_panels(
        take.bring.upload(
            _bringing(engine),
            [take.bring, kept, form.samples],
            outputs,
            show_progress_on=run,
            **PRIVATE,
            **DEVICE,
        )
    )
    filled = [*form.rows.outputs, form.samples]
    tried = examples.click(_example(engine), None, [*filled, *outputs], **PRIVATE, **DEVICE)
    then_panels(tried)
    own.click(lambda: [*ClassRows.fill([]), None], None, filled, **QUICK)
    sample_zip.upload(_samples_from_zip, [sample_zip], [form.alert, form.samples], **PRIVATE)
    page.load(_from_link, None, [*filled, *form.settings], **QUICK)


def _starts() -> tuple[gr.HTML, gr.Button]:
    """The examples, and the button that empties the form."""
    row = components.example_row(cards.lessons_html(LESSONS), name="lessons")
    return row, gr.Button(text.OWN, elem_id="own")


def _form(lesson: Lesson) -> tuple[_Form, gr.UploadButton]:
    components.html_area(heading(text.CLASSES_HEADING) + note(text.CLASSES_LEAD), name="classes-lead")
    alert = components.html_area(name="teach-alert")
    rows, _ = class_rows(lesson.rows, alert)
    components.html_area(heading(text.SAMPLES_HEADING) + note(text.SAMPLES_ZIP_HELP), name="samples-lead")
    samples = components.sample_zone([(one.path, one.truth) for one in lesson.samples])
    sample_zip = gr.UploadButton(
        text.SAMPLES_FROM_ZIP, file_types=[".zip"], size="sm", elem_id="samples-zip", type="filepath"
    )
    settings = _settings()
    adapt, stop = components.run_buttons(text.ADAPT, start="adapt", stop="stop-adapting")
    return _Form(rows, samples, settings, alert, adapt, stop), sample_zip


def _settings() -> list[Any]:
    """The advanced settings, closed; help and ranges are the engine's own."""
    rules = {rule.name: rule for rule in atlas.describe(atlas.FewShotConfig)}
    names = [(text.METHOD_NAMES[method], method) for method in METHODS]
    usual = Choices()
    with gr.Accordion(text.SETTINGS, open=False, elem_id="settings"):
        method = gr.Dropdown(names, value=usual.method, label=text.METHOD_LABEL, info=text.METHOD_HELP)
        steps = gr.Slider(
            1, LIMITS.steps, usual.steps, step=1, label=text.STEPS_LABEL, info=rules["steps"].help
        )
        lr = gr.Number(usual.lr, label=text.LR_LABEL, info=rules["lr"].help, minimum=0, maximum=10)
        seed = gr.Number(usual.seed, label=text.SEED_LABEL, info=text.SEED_HELP, precision=0, minimum=0)
    return [method, steps, lr, seed]


def _adapting(engine: atlas.Atlas, runs: Runs) -> Callable[..., Iterator[Frame]]:
    def on_adapt(
        request: gr.Request,
        kept: Kept | None,
        samples: GalleryItems,
        *values: Any,  # noqa: ANN401 - what Gradio hands over: the settings, then the rows
    ) -> Iterator[Frame]:
        session = str(request.session_hash)
        try:
            choices = _choices(*values[:SETTINGS])
            lesson = Lesson(ClassRows.read(values[SETTINGS:]), _samples(samples))
            for taught in teach(engine, lesson, choices, holding=lambda run: runs.holding(session, run)):
                yield _frame(taught)
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            yield _refused(told(error), kept)

    return on_adapt


def _frame(taught: Taught) -> Frame:
    alert = alerts.left_out_html(taught.left_out)
    if taught.kept is not None:
        return [
            alert,
            _headline(taught.kept),
            gr.skip(),
            _compared(taught.kept),
            taught.kept,
            gr.update(visible=False),
        ]
    first = taught.phase == "read" and taught.index == 0
    compare = gr.skip()
    if taught.preview is not None:
        compare = compare_cards.compare_html(taught.preview, taught.samples, remark=text.PREVIEW_NOTE)
    tabs = gr.Tabs(selected=COMPARE) if first else gr.skip()
    return [alert, run_cards.progress_html(taught), tabs, compare, gr.skip(), gr.update(visible=True)]


def _refused(message: str, kept: Kept | None) -> Frame:
    """The sentence; the result that was there stays."""
    hidden = gr.update(visible=False)
    return [alerts.alert_html(message), _headline(kept), gr.skip(), _compared(kept), gr.skip(), hidden]


def _stopping(runs: Runs) -> Callable[[gr.Request], Any]:
    def on_stop(request: gr.Request) -> Any:  # noqa: ANN401 - Gradio's update
        runs.stop(request.session_hash)
        return gr.update(visible=False)

    return on_stop


def _bringing(engine: atlas.Atlas) -> Callable[[str, Kept | None, GalleryItems], Frame]:
    def on_bring(path: str, kept: Kept | None, samples: GalleryItems) -> Frame:
        try:
            brought, left_out = load_recipe(engine, path, _samples(samples))
        except Exception as error:
            return _refused(told(error), kept)
        alert, hidden = alerts.left_out_html(left_out), gr.update(visible=False)
        return [alert, _headline(brought), gr.skip(), _compared(brought), brought, hidden]

    return on_bring


def _example(engine: atlas.Atlas) -> Callable[[gr.EventData], Frame]:
    def on_example(event: gr.EventData) -> Frame:
        example = LESSONS[int(event.example)]
        kept = load_worked(engine, example)
        samples = [(one.path, one.truth) for one in example.lesson.samples]
        shown = [alerts.NOTHING, _headline(kept, example=True), gr.skip(), _compared(kept), kept]
        return [*ClassRows.fill(example.lesson.rows), samples, *shown, gr.update(visible=False)]

    return on_example


def _samples_from_zip(archive: str) -> Iterator[Frame]:
    with TemporaryDirectory() as folder:
        try:
            rows = unpack(archive, Path(folder), min_classes=1)
        except Exception as error:
            yield [alerts.alert_html(told(error)), gr.skip()]
        else:
            yield [alerts.NOTHING, [(path, row.name) for row in rows for path in row.paths]]


def _from_link(request: gr.Request) -> Frame:
    """Class names and settings from the page's address, if it has any."""
    names, choices = from_query(request.query_params.multi_items())
    if not names:
        return [gr.skip()] * (3 * LIMITS.rows + 2 + SETTINGS)
    rows = [Row(name, ()) for name in names]
    return [*ClassRows.fill(rows), None, choices.method, choices.steps, choices.lr, choices.seed]


def _choices(method: str, steps: float, lr: float | None, seed: float | None) -> Choices:
    return Choices(method, int(steps), float(lr or 0), int(seed or 0))


def _samples(items: GalleryItems) -> tuple[Sample, ...]:
    return tuple(Sample(path, caption) for path, caption in items or [])


def _headline(kept: Kept | None, *, example: bool = False) -> str:
    if kept is None:
        return f"<section class='at-run'>{heading(text.RESULT_HEADING)}{note(text.WAITING)}</section>"
    return run_cards.verdict_html(kept, remark=text.EXAMPLE_NOTE if example else "")


def _compared(kept: Kept | None) -> str:
    return "" if kept is None else compare_cards.compare_html(kept.comparison, kept.samples)
