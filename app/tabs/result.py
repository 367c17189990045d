"""The result's side of a tab that learns: the run or its verdict, compare, look inside, take away.

A tab hands over states of its run and gets frames: values for its alert, for `ResultSide.outputs` and for its
Stop button, in that order. Knows nothing of torch, nor of what the visitor gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import alerts, compare_cards, components, run_cards, text
from app.engines import Answering
from app.events import QUICK, user_message
from app.handlers.takeaway import load_recipe
from app.handlers.teach import RunProgress
from app.markup import heading, note
from app.state import SavedResult
from app.tabs.holding import ResultState, hold, holding
from app.tabs.inside import InsidePanel, inside_panel
from app.tabs.rows import GalleryItems
from app.tabs.samples import samples_of
from app.tabs.takeaway import TakePanel, take_panel

__all__ = [
    "Frame",
    "ResultSide",
    "bringing",
    "frame",
    "refused",
    "result_side",
    "shown",
]

COMPARE = "compare"
Frame = list[Any]


@dataclass(frozen=True)
class ResultSide:
    """Its components, and the visitor's own result behind them."""

    held: ResultState[SavedResult]
    answering: Answering
    run: gr.HTML
    stop: gr.Button
    leave: gr.Button
    tabs: gr.Tabs
    compare: gr.HTML
    inside: InsidePanel
    take: TakePanel

    @property
    def outputs(self) -> list[Any]:
        """What a frame gives values for, between those for the alert and for the Stop button."""
        return [self.run, self.tabs, self.compare, *self.held.parts]

    @property
    def empty(self) -> Frame:
        """The values for `outputs` without a result."""
        return shown(None)[1:-1]

    def then_panels(self, event: Any) -> None:  # noqa: ANN401 - Gradio's dependency
        """Show the other panels after an event that may have brought a result."""
        outputs = [*self.inside.outputs, *self.take.outputs]
        event.then(self._panels, self.held.parts, outputs, **QUICK)

    def _panels(self, kept: SavedResult | None, shows: str) -> Frame:
        try:
            result, engine = self.held.shown(kept, shows), self.answering()
            return [*self.inside.show(engine, result), *self.take.show(engine, result)]
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            alert = alerts.alert_html(user_message(error))
            return [*self.inside.refuse(alert), *self.take.refuse(alert)]


def result_side(
    answering: Answering,
    opening: SavedResult | None = None,
    *,
    bundled: bool,
    file: Path | None = None,
    prefix: str = "",
) -> ResultSide:
    """Lay it out in a column; it opens on the result `opening`, whose recipe is `file`.

    `prefix` begins the names of its parts, for a second one on the page.
    """
    held = hold(opening, name=f"{prefix}shows", expired=text.EXPIRED)
    with gr.Column(scale=7, min_width=320, elem_id=f"{prefix}result"):
        stop = components.stop_button(name=f"{prefix}stop-adapting")
        leave = components.leave_button(name=f"{prefix}leave")
        run = components.html_area(_headline(opening), name=f"{prefix}run")
        with gr.Tabs(selected=COMPARE) as tabs:
            with gr.Tab(text.TAB_COMPARE, id=COMPARE):
                compare = components.html_area(_compared(opening), name=f"{prefix}compare")
            with gr.Tab(text.TAB_INSIDE, id="inside"):
                inside = inside_panel(answering, held, prefix=prefix)
            with gr.Tab(text.TAB_TAKE, id="take"):
                take = take_panel(answering, held, bundled=bundled, file=file, prefix=prefix)
    return ResultSide(held, answering, run, stop, leave, tabs, compare, inside, take)


def frame(taught: RunProgress) -> Frame:
    """How far a run has come or, at its end, what is kept of it."""
    if taught.kept is not None:
        return shown(taught.kept, left_out=taught.left_out)
    first = taught.phase == "read" and taught.index == 0
    compare = note(text.COMPARE_SOON) if first else gr.skip()
    if taught.preview is not None:
        compare = compare_cards.compare_html(taught.preview, taught.samples, remark=text.PREVIEW_NOTE)
    tabs = gr.Tabs(selected=COMPARE) if first else gr.skip()
    alert = alerts.left_out_html(taught.left_out)
    same = [gr.skip()] * len(holding(None))
    return [alert, run_cards.progress_html(taught), tabs, compare, *same, gr.update(visible=True)]


def shown(kept: SavedResult | None, *, left_out: Sequence[str] = ()) -> Frame:
    """A result, which is the visitor's from now on."""
    alert, hidden = alerts.left_out_html(left_out), gr.update(visible=False)
    return [alert, _headline(kept), gr.skip(), _compared(kept), *holding(kept), hidden]


def refused(message: str, held: ResultState[SavedResult], kept: SavedResult | None, shows: str) -> Frame:
    """The sentence; the result that was there stays, unless it has expired."""
    same, hidden = [gr.skip()] * len(held.parts), gr.update(visible=False)
    try:
        result = held.shown(kept, shows)
        there = [_headline(result), gr.skip(), _compared(result)]
    except atlas.AtlasError as expired:
        there = [_waiting(str(expired)), gr.skip(), ""]
    return [alerts.alert_html(message), *there, *same, hidden]


def bringing(
    answering: Answering, held: ResultState[SavedResult], *, most: int | None = None
) -> Callable[[str, SavedResult | None, str, GalleryItems], Frame]:
    """A recipe that is brought along, tried on the pictures at hand, or on so many of them."""

    def on_bring(path: str, kept: SavedResult | None, shows: str, items: GalleryItems) -> Frame:
        try:
            brought, left_out = load_recipe(answering(), path, samples_of(items)[:most])
        except Exception as error:
            return refused(user_message(error), held, kept, shows)
        return shown(brought, left_out=left_out)

    return on_bring


def _headline(kept: SavedResult | None) -> str:
    if kept is None:
        return _waiting(text.WAITING)
    return run_cards.verdict_html(kept, remark=text.EXAMPLE_NOTE if kept.example else "")


def _waiting(words: str) -> str:
    return f"<section class='at-run'>{heading(text.RESULT_HEADING)}{note(words)}</section>"


def _compared(kept: SavedResult | None) -> str:
    return "" if kept is None else compare_cards.compare_html(kept.comparison, kept.samples)
