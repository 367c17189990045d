"""The chip that names the model which answers a visitor, and its panel, where they choose another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import text, views
from app.events import FETCH, PRIVATE, QUICK, UNCHANGED, Updates, Values, stop_run_on_close, user_message
from app.handlers.models import ChoiceProgress, choose_model, describe_model, offered_models
from app.handlers.takeaway import fits
from app.session import CurrentModel, Engines, Runs
from app.tabs import components
from app.tabs.forget import ForgetSide
from app.tabs.result import ResultSide

__all__ = ["ModelChip"]


@dataclass(frozen=True)
class _ModelTab:
    """What a choice changes on the page."""

    engines: Engines
    chip: gr.Button
    alert: gr.HTML
    status: gr.HTML
    card: gr.HTML
    stop: gr.Button

    @property
    def outputs(self) -> list[Any]:
        return [self.chip, self.alert, self.status, self.card, self.stop]

    def show_progress(self, progress: ChoiceProgress, session: str) -> Updates:
        updates: Updates = {
            self.alert: views.EMPTY,
            self.status: views.render_model_status(progress.doing, progress.share),
            self.stop: gr.update(visible=not progress.finished),
        }
        if progress.finished:
            facts = describe_model(self.engines.engine_of(session), self.engines.name_of(session))
            updates[self.card] = views.render_model(facts)
            updates[self.chip] = text.model.chip(facts.name)
        return updates

    def show_refusal(self, message: str, session: str) -> Updates:
        message = text.model.still_answering(self.engines.name_of(session), message)
        return {
            self.alert: views.render_alert(message),
            self.status: views.EMPTY,
            self.stop: gr.update(visible=False),
        }

    def show_stopped(self) -> Updates:
        return {
            self.status: views.render_model_status(text.model.STOPPED),
            self.stop: gr.update(visible=False),
        }


@dataclass(frozen=True)
class ModelChip:
    """The chip in the page's header that names the model which answers, and the panel that it opens."""

    current: CurrentModel
    chip: gr.Button
    model: gr.Dropdown | None  # None where the choice is fixed
    use: gr.Button | None
    tab: _ModelTab | None

    @classmethod
    def create(cls, current: CurrentModel, header: str, *, fixed: bool = False) -> ModelChip:
        """Lay out the header with its chip, and the panel, closed, below.

        `fixed` is for a host where models cannot be opened later: the panel only tells which one it is.
        """
        engines = current.engines
        with gr.Row(elem_classes="at-top"):
            components.html_area(header, name="header")
            chip = gr.Button(
                text.model.chip(engines.first_name), size="sm", elem_id="model-chip", elem_classes="at-chip"
            )
        facts = views.render_model(describe_model(engines.first, engines.first_name))
        with gr.Column(visible=False, elem_id="model-panel", elem_classes="at-panel") as panel:
            lead = text.model.FIXED if fixed else text.model.LEAD
            components.html_area(views.render_note(lead), name="model-lead")
            card, model, use, tab = _create_panel(engines, chip, facts, fixed=fixed)
        opened = gr.State(False)

        def on_chip(request: gr.Request, is_open: bool) -> tuple[bool, Any, Any]:
            """Open the panel or close it; where the bank's vectors are is told as it is when it opens."""
            if is_open:
                return False, gr.update(visible=False), gr.skip()
            session = str(request.session_hash)
            now = describe_model(engines.engine_of(session), engines.name_of(session))
            return True, gr.update(visible=True), views.render_model(now)

        chip.click(on_chip, opened, [opened, panel, card], **QUICK)
        return cls(current, chip, model, use, tab)

    def wire(self, page: gr.Blocks, runs: Runs, *, sides: Sequence[ResultSide | ForgetSide]) -> None:
        """Let a model be chosen; `runs` are those that fetch one.

        `sides` show results: those of a former model go when another is chosen.
        """
        if self.tab is None or self.use is None:
            return
        tab, engines = self.tab, self.current.engines

        def on_choose(request: gr.Request, name: str | None) -> Iterator[Updates]:
            session = str(request.session_hash)
            try:
                with runs.begin(session) as stop_signal:
                    for progress in choose_model(engines, session, name, stop_signal=stop_signal):
                        yield tab.show_progress(progress, session)
            except Exception as error:  # the border: a visitor gets a sentence, whatever happened
                yield tab.show_refusal(user_message(error), session)

        def on_stop(request: gr.Request) -> Updates:
            """Said at once, though what is under way ends only with its step."""
            runs.stop(request.session_hash)
            return tab.show_stopped()

        chosen = self.use.click(
            on_choose,
            [self.model],
            tab.outputs,
            show_progress="minimal",
            show_progress_on=tab.status,
            **PRIVATE,
            **FETCH,
        )
        tab.stop.click(on_stop, None, [tab.status, tab.stop], **QUICK)
        for side in sides:
            clear = _clear_misfit(self.current, side)
            side.then_show_panels(chosen.then(clear, side.state.components, side.outputs, **QUICK))
        stop_run_on_close(page, runs)


def _create_panel(
    engines: Engines, chip: gr.Button, facts: str, *, fixed: bool
) -> tuple[gr.HTML, gr.Dropdown | None, gr.Button | None, _ModelTab | None]:
    """The card of the model, and the controls to choose another where the choice is not fixed."""
    if fixed:
        return components.html_area(facts, name="model-card"), None, None, None
    names = [(text.model.NAMES.get(name, name), name) for name in offered_models(engines)]
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=5, min_width=320):
            model = gr.Dropdown(
                names,
                value=engines.first_name,
                label=text.model.LABEL,
                info=text.model.HELP,
                allow_custom_value=True,
                elem_id="model",
            )
            use, stop = components.run_buttons(text.model.CHOOSE, start="use-model", stop="stop-model")
            alert = components.html_area(name="model-alert")
        with gr.Column(scale=7, min_width=320):
            card = components.html_area(facts, name="model-card")
            status = components.html_area(name="model-status")
    return card, model, use, _ModelTab(engines, chip, alert, status, card, stop)


def _clear_misfit(current: CurrentModel, side: ResultSide | ForgetSide) -> Callable[[Values], Updates]:
    def on_model(values: Values) -> Updates:
        """What was learned with another model goes, since this one cannot use it."""
        try:
            result = side.state.read(values)
            if result is None or fits(result.recipe, current.engine()):
                return UNCHANGED
        except atlas.AtlasError:  # the result has expired, or the model was let go
            pass
        return side.clear()

    return on_model
