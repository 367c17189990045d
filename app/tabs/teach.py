"""The first tab: classes and pictures in, an adapted model out, with everything one may see of it.

Left the lesson, right its result: compare, look inside, take away. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import cards, components, text
from app.alerts import sentence
from app.engines import Answering
from app.events import DEVICE, PRIVATE, QUICK, user_message
from app.examples import LESSONS
from app.handlers.choices import METHODS, Choices, from_query
from app.handlers.lesson import ClassRow, FewShotRequest
from app.handlers.teach import teach
from app.limits import LIMITS
from app.markup import heading, note
from app.prepared_examples import RECIPE, load_worked
from app.state import Runs, SavedResult
from app.tabs.holding import ResultState
from app.tabs.links import link_note
from app.tabs.result import Frame, ResultSide, bringing, frame, refused, result_side, shown
from app.tabs.rows import VALUES, ClassRows, GalleryItems, class_rows
from app.tabs.samples import in_gallery, photos_from_zip, samples_of
from app.tabs.stopping import leaving, stopping

__all__ = ["teach_tab"]

SETTINGS = 4  # the advanced settings


@dataclass(frozen=True)
class _Form:
    """The left side: what the visitor gives."""

    rows: ClassRows
    samples: gr.Gallery
    settings: list[Any]
    alert: gr.HTML
    adapt: gr.Button

    @property
    def inputs(self) -> list[Any]:
        return [self.samples, *self.settings, *self.rows.inputs]


def teach_tab(page: gr.Blocks, answering: Answering, runs: Runs, *, bundled: bool) -> ResultSide:
    """Lay out the tab inside the current Blocks; it opens on the first worked example."""
    opening = load_worked(answering(), LESSONS[0])
    lesson = LESSONS[0].lesson
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=4, min_width=320):
            examples, own = _starts()
            form, sample_zip = _form(lesson)
        side = result_side(answering, opening, bundled=bundled, file=LESSONS[0].path / RECIPE)
    outputs = [form.alert, *side.outputs, side.stop]
    side.then_panels(
        form.adapt.click(
            _adapting(answering, runs, side.held),
            [*side.held.parts, *form.inputs],
            outputs,
            show_progress="minimal",
            show_progress_on=side.run,
            **PRIVATE,
            **DEVICE,
        )
    )
    leaving(side.leave, runs, form.alert)
    side.stop.click(stopping(runs), None, [side.stop], **QUICK)
    side.then_panels(
        side.take.bring.upload(
            bringing(answering, side.held),
            [side.take.bring, *side.held.parts, form.samples],
            outputs,
            show_progress_on=side.run,
            **PRIVATE,
            **DEVICE,
        )
    )
    filled = [*form.rows.outputs, form.samples]
    side.then_panels(
        examples.click(
            _example(answering, side.held),
            side.held.parts,
            [*filled, *outputs],
            show_progress="minimal",
            show_progress_on=[examples, side.run],
            **PRIVATE,
            **DEVICE,
        )
    )
    own.click(lambda: [*ClassRows.fill([]), None], None, filled, **QUICK)
    fill = photos_from_zip(form.samples)
    sample_zip.upload(fill, [sample_zip], [form.alert, form.samples], queue=False, **PRIVATE)
    page.load(_from_link(answering), None, [*filled, *form.settings, form.alert], **QUICK)
    return side


def _starts() -> tuple[gr.HTML, gr.Button]:
    """The examples, and the button that empties the form."""
    row = components.example_row(cards.lessons_html(LESSONS), name="lessons")
    components.html_area(cards.jump_html("result"), name="jump")
    return row, gr.Button(text.OWN, elem_id="own")


def _form(lesson: FewShotRequest) -> tuple[_Form, gr.UploadButton]:
    components.html_area(heading(text.CLASSES_HEADING) + note(text.CLASSES_LEAD), name="classes-lead")
    alert = components.html_area(name="teach-alert")
    rows, _ = class_rows(lesson.rows, alert)
    components.html_area(heading(text.SAMPLES_HEADING) + note(text.SAMPLES_ZIP_HELP), name="samples-lead")
    samples = components.sample_zone(in_gallery(lesson.samples))
    with gr.Row(elem_classes="at-buttons"):
        sample_zip = components.folder_or_zip(text.FILL_FROM_FOLDER, text.FILL_FROM_ZIP, name="samples")
    settings = _settings()
    adapt = components.start_button(text.ADAPT, name="adapt")
    return _Form(rows, samples, settings, alert, adapt), sample_zip


def _settings() -> list[Any]:
    """The advanced settings, closed; help and ranges are the engine's own."""
    rules = {rule.name: rule for rule in atlas.describe(atlas.FewShotConfig)}
    names = [(text.METHOD_NAMES[method], method) for method in METHODS]
    usual = Choices()
    with gr.Accordion(text.SETTINGS, open=False, elem_id="settings"):
        method = gr.Dropdown(names, value=usual.method, label=text.METHOD_LABEL, info=text.METHOD_HELP)
        steps = gr.Slider(
            1, LIMITS.steps, usual.steps, step=1, label=text.STEPS_LABEL, info=sentence(rules["steps"].help)
        )
        lr = gr.Number(
            usual.lr, label=text.LR_LABEL, info=sentence(rules["lr"].help), minimum=0, maximum=10, step=0.01
        )
        seed = gr.Number(usual.seed, label=text.SEED_LABEL, info=text.SEED_HELP, precision=0, minimum=0)
    return [method, steps, lr, seed]


def _adapting(
    answering: Answering, runs: Runs, held: ResultState[SavedResult]
) -> Callable[..., Iterator[Frame]]:
    def on_adapt(
        request: gr.Request,
        kept: SavedResult | None,
        shows: str,
        samples: GalleryItems,
        *values: Any,  # noqa: ANN401 - what Gradio hands over: the settings, then the rows
    ) -> Iterator[Frame]:
        try:
            engine = answering()
            choices = _choices(*values[:SETTINGS])
            lesson = FewShotRequest(ClassRows.read(values[SETTINGS:]), samples_of(samples))
            with runs.sign(request.session_hash) as sign:
                for taught in teach(engine, lesson, choices, sign=sign):
                    yield frame(taught)
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            yield refused(user_message(error), held, kept, shows)

    return on_adapt


def _example(
    answering: Answering, held: ResultState[SavedResult]
) -> Callable[[gr.EventData, SavedResult | None, str], Frame]:
    def on_example(event: gr.EventData, kept: SavedResult | None, shows: str) -> Frame:
        try:
            example = LESSONS[int(event.example)]
            worked = load_worked(answering(), example)
        except Exception as error:
            return [*[gr.skip()] * (VALUES + 1), *refused(user_message(error), held, kept, shows)]
        samples = in_gallery(example.lesson.samples)
        return [*ClassRows.fill(example.lesson.rows), samples, *shown(worked)]

    return on_example


def _from_link(answering: Answering) -> Callable[[gr.Request], Frame]:
    def on_load(request: gr.Request) -> Frame:
        """Class names and settings from the page's address, if it has any, and a word on its model."""
        pairs = request.query_params.multi_items()
        names, choices = from_query(pairs)
        if not names:
            return [gr.skip()] * (VALUES + 1 + SETTINGS + 1)
        rows, settings = [ClassRow(name, ()) for name in names], astuple(choices)
        return [*ClassRows.fill(rows), None, *settings, link_note(pairs, answering().backbone.name)]

    return on_load


def _choices(method: str, steps: float, lr: float | None, seed: float | None) -> Choices:
    """The settings; a number that was emptied is as usual."""
    return Choices(method, int(steps), Choices.lr if lr is None else float(lr), int(seed or 0))
