"""The result: the run or its verdict, the answers image by image, look inside, take away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import text, views
from app.events import (
    DEVICE,
    PRIVATE,
    QUICK,
    Updates,
    Values,
    leave_queue_with,
    stop_run_with,
    user_message,
)
from app.handlers.few_shot import RunProgress, SavedResult, show_learned
from app.handlers.settings import FewShotSettings
from app.handlers.takeaway import load_recipe
from app.handlers.trying import TryProgress
from app.session import CurrentModel, Runs
from app.shares import Shares
from app.tabs import components
from app.tabs.galleries import files_in
from app.tabs.inside import InsidePanel
from app.tabs.result_state import ResultState
from app.tabs.sharing import SharePanel
from app.tabs.takeaway import TakePanel

__all__ = ["ResultSide"]

ANSWERS = "answers"


@dataclass(frozen=True)
class ResultSide:
    """Its components, and how progress, results, answers and refusals are shown in them."""

    current: CurrentModel
    state: ResultState[SavedResult]
    alert: gr.HTML
    run: gr.HTML
    stop: gr.Button
    anyway: gr.Button  # shows what was learned where the model as it was has been kept
    tabs: gr.Tabs
    compare: gr.HTML
    words: gr.Textbox  # the classes that answers are chosen from, among what the visitor gives
    inside: InsidePanel
    take: TakePanel
    share: SharePanel

    @classmethod
    def create(
        cls,
        current: CurrentModel,
        runs: Runs,
        state: ResultState[SavedResult],
        words: gr.Textbox,
        *,
        shares: Shares,
        own_bank: bool,
        file: Path | None = None,
    ) -> ResultSide:
        """Lay it out in a column; it opens on the state's example, whose recipe is `file`."""
        with gr.Column(scale=7, min_width=320, elem_id="result"):
            alert = components.html_area(name="alert")
            stop = components.stop_button(name="stop-adapting")
            leave = components.leave_button(name="leave")
            run = components.html_area(_render_verdict(state.example), name="run")
            anyway = gr.Button(
                text.result.SHOW_ANYWAY, size="sm", visible=_has_more(state.example), elem_id="anyway"
            )
            with gr.Tabs(selected=ANSWERS) as tabs:
                with gr.Tab(text.result.TAB_COMPARE, id=ANSWERS):
                    compare = components.answers_area(_render_comparison(state.example), name="compare")
                with gr.Tab(text.result.TAB_INSIDE, id="inside") as inside_tab:
                    inside = InsidePanel.create(current, state, inside_tab)
                with gr.Tab(text.result.TAB_TAKE, id="take"):
                    share = SharePanel.create(state, shares)
                    take = TakePanel.create(
                        current, state, own_bank=own_bank, defaults=FewShotSettings(), file=file
                    )
        leave_queue_with(leave, runs, alert)
        stop_run_with(stop, runs)
        side = cls(current, state, alert, run, stop, anyway, tabs, compare, words, inside, take, share)
        side._wire()
        return side

    @property
    def outputs(self) -> list[Any]:
        """What an event may update that brings progress, a result or a refusal."""
        shown = [self.alert, self.run, self.tabs, self.compare, self.words, self.stop, self.anyway]
        return [*shown, self.share.link, *self.state.components]

    # ---- what an event gives back

    def show_progress(self, progress: RunProgress) -> Updates:
        """How far a run has come or, at its end, its result."""
        if progress.result is not None:
            return self.show_result(progress.result, left_out=progress.left_out)
        updates: Updates = {
            self.alert: views.render_left_out(progress.left_out),
            self.run: views.render_progress(progress),
            self.stop: gr.update(visible=True),
            self.anyway: gr.update(visible=False),
        }
        if progress.just_begun:
            updates[self.tabs] = gr.update(selected=ANSWERS)
            updates[self.compare] = views.render_note(text.result.COMPARE_SOON)
        if progress.preview is not None:  # from now on images to try are answered by it
            updates |= self.state.store(progress.preview)
            updates[self.compare] = _render_comparison(progress.preview)
            updates[self.words] = _words_of(progress.preview)
        return updates

    def show_result(self, result: SavedResult | None, *, left_out: Sequence[str] = ()) -> Updates:
        """A result, which is the visitor's from now on."""
        return {
            self.alert: views.render_left_out(left_out),
            self.run: _render_verdict(result),
            self.compare: _render_comparison(result),
            self.words: _words_of(result),
            self.tabs: gr.update(selected=ANSWERS),  # what is inside is shown when it is opened again
            **self.state.store(result),
            self.stop: components.hide_stop(),
            self.anyway: gr.update(visible=_has_more(result)),
            self.share.link: views.EMPTY,
        }

    def show_answers(self, progress: TryProgress) -> Updates:
        """The answers to images that the visitor tries, the new ones first."""
        result = progress.result
        return {
            self.alert: views.render_left_out(progress.left_out),
            self.compare: _render_comparison(result, first=progress.fresh),
            **self.state.store(result),
        }

    def show_refusal(self, message: str, values: Values) -> Updates:
        """The sentence; the result that was there stays, unless it has expired."""
        updates: Updates = {self.alert: views.render_alert(message), self.stop: components.hide_stop()}
        try:
            result = self.state.read(values)
        except atlas.AtlasError as expired:
            return {**updates, self.run: views.render_waiting(str(expired)), self.compare: views.EMPTY}
        return {**updates, self.run: _render_verdict(result), self.compare: _render_comparison(result)}

    def clear(self) -> Updates:
        """No result."""
        return {
            self.alert: views.EMPTY,
            self.run: _render_verdict(None),
            self.compare: _render_comparison(None),
            self.words: "",
            self.anyway: gr.update(visible=False),
            **self.state.store(None),
        }

    # ---- wiring

    def _wire(self) -> None:
        def on_anyway(values: Values) -> Updates:
            try:
                result = self.state.read(values)
                if result is None:
                    raise atlas.AtlasError(text.result.NOTHING_INSTEAD)
                return self.show_result(show_learned(self.current.engine(), result))
            except Exception as error:
                return self.show_refusal(user_message(error), values)

        shown = self.anyway.click(
            on_anyway,
            self.state.components,
            self.outputs,
            show_progress="minimal",
            show_progress_on=self.run,
            **PRIVATE,
            **DEVICE,
        )
        self.then_show_panels(shown)

    def then_show_panels(self, event: Any) -> None:  # noqa: ANN401 - Gradio's dependency
        """Show what can be taken away after an event that may have brought a result."""

        def on_result(values: Values) -> Updates:
            try:
                result, engine = self.state.read(values), self.current.engine()
                return self.take.show(engine, self.current.name(), result)
            except Exception as error:  # the border: a visitor gets a sentence, whatever happened
                return self.take.show_alert(views.render_alert(user_message(error)))

        event.then(on_result, self.state.components, self.take.outputs, **QUICK)

    def bring_recipe(self, samples: gr.Gallery) -> None:
        """Let a recipe be brought along, and tried on the images of a gallery."""
        bring = self.take.bring

        def on_bring(values: Values) -> Updates:
            try:
                files = files_in(values[samples])
                result, left_out = load_recipe(self.current.engine(), values[bring], files)
            except Exception as error:
                return self.show_refusal(user_message(error), values)
            return self.show_result(result, left_out=left_out)

        brought = bring.upload(
            on_bring,
            {bring, samples, *self.state.components},
            self.outputs,
            show_progress_on=self.run,
            **PRIVATE,
            **DEVICE,
        )
        self.then_show_panels(brought)


def _has_more(result: SavedResult | None) -> bool:
    """Whether something was learned beside what is shown, which is the model as it was."""
    return result is not None and result.learned_instead is not None


def _words_of(result: SavedResult | None) -> str:
    return "" if result is None else ", ".join(result.recipe.classes)


def _render_verdict(result: SavedResult | None) -> str:
    if result is None:
        return views.render_waiting(text.result.WAITING)
    return views.render_verdict(result, remark=text.result.EXAMPLE_NOTE if result.example else "")


def _render_comparison(result: SavedResult | None, *, first: Sequence[str] = ()) -> str:
    if result is None:
        return views.render_note(text.trying.NOTHING_TAUGHT)
    return views.render_comparison(result, first=first)
