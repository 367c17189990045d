"""The result's side of a tab that learns: the run or its verdict, compare, look inside, take away."""

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
from app.handlers.few_shot import RunProgress, SavedResult
from app.handlers.settings import FewShotSettings, UnlabelledSettings
from app.handlers.takeaway import load_recipe
from app.session import CurrentModel, Runs
from app.tabs import components
from app.tabs.galleries import files_in
from app.tabs.inside import InsidePanel
from app.tabs.result_state import ResultState
from app.tabs.takeaway import TakePanel

__all__ = ["ResultSide"]

COMPARE = "compare"


@dataclass(frozen=True)
class ResultSide:
    """Its components, and how progress, results and refusals are shown in them."""

    current: CurrentModel
    state: ResultState[SavedResult]
    alert: gr.HTML  # among what the visitor gives
    run: gr.HTML
    stop: gr.Button
    tabs: gr.Tabs
    compare: gr.HTML
    inside: InsidePanel
    take: TakePanel

    @classmethod
    def create(
        cls,
        current: CurrentModel,
        runs: Runs,
        alert: gr.HTML,
        *,
        own_bank: bool,
        defaults: FewShotSettings | UnlabelledSettings,
        example: SavedResult | None = None,
        file: Path | None = None,
        prefix: str = "",
    ) -> ResultSide:
        """Lay it out in a column; it opens on the result `example`, whose recipe is `file`.

        `prefix` begins the names of its parts, for a second one on the page.
        """
        state = ResultState[SavedResult].create(example, name=f"{prefix}shows", expired=text.result.EXPIRED)
        with gr.Column(scale=7, min_width=320, elem_id=f"{prefix}result"):
            stop = components.stop_button(name=f"{prefix}stop-adapting")
            leave = components.leave_button(name=f"{prefix}leave")
            run = components.html_area(_render_verdict(example), name=f"{prefix}run")
            with gr.Tabs(selected=COMPARE) as tabs:
                with gr.Tab(text.result.TAB_COMPARE, id=COMPARE):
                    compare = components.html_area(_render_comparison(example), name=f"{prefix}compare")
                with gr.Tab(text.result.TAB_INSIDE, id="inside"):
                    inside = InsidePanel.create(current, state, prefix=prefix)
                with gr.Tab(text.result.TAB_TAKE, id="take"):
                    take = TakePanel.create(
                        current, state, own_bank=own_bank, defaults=defaults, file=file, prefix=prefix
                    )
        leave_queue_with(leave, runs, alert)
        stop_run_with(stop, runs)
        return cls(current, state, alert, run, stop, tabs, compare, inside, take)

    @property
    def outputs(self) -> list[Any]:
        """What an event may update that brings progress, a result or a refusal."""
        return [self.alert, self.run, self.tabs, self.compare, *self.state.components, self.stop]

    # ---- what an event gives back

    def show_progress(self, progress: RunProgress) -> Updates:
        """How far a run has come or, at its end, its result."""
        if progress.result is not None:
            return self.show_result(progress.result, left_out=progress.left_out)
        updates: Updates = {
            self.alert: views.render_left_out(progress.left_out),
            self.run: views.render_progress(progress),
            self.stop: gr.update(visible=True),
        }
        if progress.just_begun:
            updates[self.tabs] = gr.update(selected=COMPARE)
            updates[self.compare] = views.render_note(text.result.COMPARE_SOON)
        if progress.preview is not None:
            updates[self.compare] = views.render_comparison(
                progress.preview, progress.samples, remark=text.result.PREVIEW_NOTE
            )
        return updates

    def show_result(self, result: SavedResult | None, *, left_out: Sequence[str] = ()) -> Updates:
        """A result, which is the visitor's from now on."""
        return {
            self.alert: views.render_left_out(left_out),
            self.run: _render_verdict(result),
            self.compare: _render_comparison(result),
            **self.state.store(result),
            self.stop: gr.update(visible=False),
        }

    def show_refusal(self, message: str, values: Values) -> Updates:
        """The sentence; the result that was there stays, unless it has expired."""
        updates: Updates = {self.alert: views.render_alert(message), self.stop: gr.update(visible=False)}
        try:
            result = self.state.read(values)
        except atlas.AtlasError as expired:
            return {**updates, self.run: views.render_waiting(str(expired)), self.compare: views.EMPTY}
        return {**updates, self.run: _render_verdict(result), self.compare: _render_comparison(result)}

    def clear(self) -> Updates:
        """No result."""
        return {
            self.run: _render_verdict(None),
            self.compare: _render_comparison(None),
            **self.state.store(None),
        }

    # ---- wiring

    def then_show_panels(self, event: Any) -> None:  # noqa: ANN401 - Gradio's dependency
        """Show the other panels after an event that may have brought a result."""

        def on_result(values: Values) -> Updates:
            try:
                result, engine = self.state.read(values), self.current.engine()
                return {
                    **self.inside.show(engine, result),
                    **self.take.show(engine, self.current.name(), result),
                }
            except Exception as error:  # the border: a visitor gets a sentence, whatever happened
                alert = views.render_alert(user_message(error))
                return {**self.inside.show_alert(alert), **self.take.show_alert(alert)}

        outputs = [*self.inside.outputs, *self.take.outputs]
        event.then(on_result, self.state.components, outputs, **QUICK)

    def bring_recipe(self, samples: gr.Gallery, *, most: int | None = None) -> None:
        """Let a recipe be brought along, and tried on the first `most` images of a gallery."""
        bring = self.take.bring

        def on_bring(values: Values) -> Updates:
            try:
                files = files_in(values[samples])[:most]
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


def _render_verdict(result: SavedResult | None) -> str:
    if result is None:
        return views.render_waiting(text.result.WAITING)
    return views.render_verdict(result, remark=text.result.EXAMPLE_NOTE if result.example else "")


def _render_comparison(result: SavedResult | None) -> str:
    return views.EMPTY if result is None else views.render_comparison(result.comparison, result.samples)
