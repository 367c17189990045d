"""The tab that needs no labels: photos and class names in, a model adapted to them out.

Left the photos, right the result as on the tab that learns from labels. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app import alerts, cards, components, roll_text, text
from app.engines import Answering
from app.events import DEVICE, PRIVATE, QUICK, user_message
from app.examples import ROLLS
from app.handlers.ask import split_classes
from app.handlers.choices import EVERY_NAME, OBJECTIVES, RollChoices, roll_from_query
from app.handlers.unlabelled import Roll, adapt_roll
from app.limits import LIMITS
from app.markup import heading, note
from app.state import Runs, SavedResult
from app.tabs.holding import ResultState
from app.tabs.links import link_note
from app.tabs.result import Frame, ResultSide, bringing, frame, refused, result_side
from app.tabs.rows import GalleryItems
from app.tabs.samples import in_gallery, photos_from_zip, samples_of
from app.tabs.stopping import leaving, stopping

__all__ = ["TAB_ID", "unlabelled_tab"]

TAB_ID = "unlabelled"


@dataclass(frozen=True)
class _Form:
    """The left side: what the visitor gives."""

    photos: gr.Gallery
    archive: gr.UploadButton
    names: gr.Textbox
    every: gr.Checkbox
    settings: list[Any]
    alert: gr.HTML
    adapt: gr.Button

    @property
    def inputs(self) -> list[Any]:
        return [self.photos, self.names, *self.settings]


def unlabelled_tab(
    page: gr.Blocks, tabs: gr.Tabs, answering: Answering, runs: Runs, *, bundled: bool
) -> ResultSide:
    """Lay out the tab inside the current Blocks, as one of `tabs`; a link may open the page on it."""
    components.html_area(note(roll_text.LEAD), name="roll-lead")
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=4, min_width=320):
            examples = components.example_row(cards.rolls_html(ROLLS), name="rolls")
            form = _form()
        side = result_side(answering, bundled=bundled, prefix="roll-")
    outputs = [form.alert, *side.outputs, side.stop]
    shows: dict[str, Any] = {"show_progress_on": side.run, **PRIVATE, **DEVICE}
    held, bring = side.held.parts, side.take.bring
    run = _adapting(answering, runs, side.held)
    filled = examples.click(_fill, None, [form.alert, form.photos, form.names], **PRIVATE, queue=False)
    for start in (form.adapt.click, form.names.submit, filled.then):
        side.then_panels(start(run, [*held, *form.inputs], outputs, show_progress="minimal", **shows))
    leaving(side.leave, runs, form.alert)
    side.stop.click(stopping(runs), None, [side.stop], **QUICK)
    side.then_panels(
        bring.upload(
            bringing(answering, side.held, most=LIMITS.samples), [bring, *held, form.photos], outputs, **shows
        )
    )
    fill = photos_from_zip(form.photos)
    form.archive.upload(fill, [form.archive], [form.alert, form.photos], queue=False, **PRIVATE)
    method = form.settings[0]
    form.every.input(lambda known: EVERY_NAME if known else OBJECTIVES[0], form.every, method, **QUICK)
    method.input(lambda name: name == EVERY_NAME, method, form.every, **QUICK)
    outputs = [tabs, form.names, form.every, *form.settings, form.alert]
    page.load(_from_link(answering), None, outputs, **QUICK)
    return side


def _form() -> _Form:
    lead = heading(roll_text.PHOTOS_HEADING) + note(roll_text.PHOTOS_HELP)
    components.html_area(lead, name="roll-photos-lead")
    photos = components.roll_zone()
    with gr.Row(elem_classes="at-buttons"):
        archive = components.folder_or_zip(text.FILL_FROM_FOLDER, text.FILL_FROM_ZIP, name="roll")
    components.html_area(note(roll_text.ZIP_HELP), name="roll-zip-help")
    components.html_area(heading(roll_text.NAMES_HEADING), name="roll-names-lead")
    names = components.class_box(name="roll-names")
    every = gr.Checkbox(label=roll_text.ALL_LABEL, info=roll_text.ALL_HELP, elem_id="roll-every")
    settings = _settings()
    adapt = components.start_button(text.ADAPT, name="roll-adapt")
    alert = components.html_area(name="roll-alert")
    return _Form(photos, archive, names, every, settings, alert, adapt)


def _settings() -> list[Any]:
    usual, named = RollChoices(), [(roll_text.METHOD_NAMES[one], one) for one in OBJECTIVES]
    with gr.Accordion(text.SETTINGS, open=False, elem_id="roll-settings"):
        objective = gr.Dropdown(
            named, value=usual.objective, label=text.METHOD_LABEL, info=roll_text.METHOD_HELP
        )
        seed = gr.Number(usual.seed, label=text.SEED_LABEL, info=text.SEED_HELP, precision=0, minimum=0)
    return [objective, seed]


def _adapting(
    answering: Answering, runs: Runs, held: ResultState[SavedResult]
) -> Callable[..., Iterator[Frame]]:
    def on_adapt(  # noqa: PLR0917 - an event, which Gradio calls
        request: gr.Request,
        kept: SavedResult | None,
        shows: str,
        photos: GalleryItems,
        names: str | None,
        objective: str,
        seed: float | None,
    ) -> Iterator[Frame]:
        try:
            engine = answering()
            roll = Roll(samples_of(photos), split_classes(names or ""))
            chosen = RollChoices(objective, int(seed or 0))
            with runs.sign(request.session_hash) as sign:
                for taught in adapt_roll(engine, roll, chosen, sign=sign):
                    yield frame(taught)
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            yield refused(user_message(error), held, kept, shows)

    return on_adapt


def _fill(event: gr.EventData) -> Frame:
    example = ROLLS[int(event.example)]
    return [alerts.NOTHING, in_gallery(example.photos), ", ".join(example.classes)]


def _from_link(answering: Answering) -> Callable[[gr.Request], Frame]:
    def on_load(request: gr.Request) -> Frame:
        """Names and settings from the page's address, if it has any; then the page opens on this tab."""
        pairs = request.query_params.multi_items()
        names, choices = roll_from_query(pairs)
        if not names:
            return [gr.skip()] * 6
        known, settings = choices.objective == EVERY_NAME, [choices.objective, choices.seed]
        told = link_note(pairs, answering().backbone.name)
        return [gr.Tabs(selected=TAB_ID), ", ".join(names), known, *settings, told]

    return on_load
