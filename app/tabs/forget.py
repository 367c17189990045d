"""The tab that forgets: classes to lose and classes to keep in, a slider with the price of each strength out.

Left what the visitor gives, right what came of it. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import alerts, components, forget_cards, forget_text, inside_cards, run_cards, text
from app.engines import Answering
from app.events import DEVICE, PRIVATE, QUICK, html_errors, user_message
from app.examples import FORGET
from app.handlers.forget import (
    STRENGTHS,
    ForgetProgress,
    ForgetRequest,
    ForgetResult,
    forget,
    look,
    rows_of,
    shell_line,
)
from app.handlers.lesson import ClassRow
from app.handlers.takeaway import origin_of, save_recipe
from app.markup import heading, note
from app.prepared_examples import load_forgotten
from app.state import Runs
from app.tabs.holding import ResultState, hold, holding
from app.tabs.rows import GalleryItems
from app.tabs.samples import samples_from_zip, samples_of
from app.tabs.stopping import leaving, stopping

__all__ = ["ForgetSide", "forget_tab"]

PERCENT = 100
FULL = PERCENT * STRENGTHS[-1]
Frame = list[Any]  # one value for each of: alert, run, what is held, slider, numbers, pictures, stop


@dataclass(frozen=True)
class _Form:
    """The left side: what the visitor gives."""

    target: gr.Gallery
    control: gr.Gallery
    settings: list[Any]
    alert: gr.HTML
    start: gr.Button


@dataclass(frozen=True)
class ForgetSide:
    """The right side: what came of it, and the visitor's own result behind it."""

    held: ResultState[ForgetResult]
    outputs: list[Any]  # run, what is held, slider, numbers, pictures
    taken: list[Any]  # the recipe's file and its line
    take: Callable[[ForgetResult | None, str], Frame]  # values for them

    @property
    def empty(self) -> Frame:
        """The values for `outputs` without a result."""
        return [_headline(None), *holding(None), *_slid(None)]

    def then_panels(self, event: Any) -> None:  # noqa: ANN401 - Gradio's dependency
        """Show what can be taken away after an event that may have brought a result."""
        event.then(self.take, self.held.parts, self.taken, **QUICK)


def forget_tab(answering: Answering, runs: Runs, *, bundled: bool) -> ForgetSide:
    """Lay out the tab inside the current Blocks; it opens on the worked example."""
    own = answering().backbone.name if bundled else None
    opening = load_forgotten(answering())
    held = hold(opening, name="forget-shows", expired=forget_text.EXPIRED)
    components.html_area(note(forget_text.LEAD), name="forget-lead")
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=4, min_width=320):
            example = components.example_row(forget_cards.example_html(FORGET), name="forget-examples")
            form = _form()
        with gr.Column(scale=7, min_width=320):
            stop = components.stop_button(name="forget-stop")
            leave = components.leave_button(name="forget-leave")
            run = components.html_area(_headline(opening), name="forget-run")
            slider = gr.Slider(
                0,
                FULL,
                FULL,
                step=PERCENT * STRENGTHS[1],
                label=forget_text.STRENGTH_LABEL,
                info=forget_text.STRENGTH_HELP,
                visible=opening is not None,
                elem_id="forget-strength",
            )
            numbers = components.html_area(_numbers(opening, FULL), name="forget-numbers")
            pictures = components.html_area(_unseen(opening), name="forget-pictures")
            recipe = gr.DownloadButton(
                forget_text.RECIPE_DOWNLOAD, size="sm", visible=False, elem_id="forget-recipe"
            )
            lines = components.html_area(name="forget-lines")
    outputs = [run, *held.parts, slider, numbers, pictures]
    side = ForgetSide(held, outputs, [recipe, lines], _taking(answering, held, recipe, own))
    begun = form.start.click(
        _forgetting(answering, runs, held),
        [*held.parts, form.target, form.control, *form.settings],
        [form.alert, *side.outputs, stop],
        show_progress="minimal",
        show_progress_on=run,
        **PRIVATE,
        **DEVICE,
    )
    side.then_panels(begun)
    leaving(leave, runs, form.alert)
    stop.click(stopping(runs), None, [stop], **QUICK)

    @html_errors
    def on_strength(kept: ForgetResult | None, shows: str, strength: float) -> str:
        return _numbers(held.shown(kept, shows), strength)

    @html_errors
    def on_slide(kept: ForgetResult | None, shows: str, strength: float) -> str:
        result = held.shown(kept, shows)
        return "" if result is None else forget_cards.seen_html(look(answering(), result, strength / PERCENT))

    slider.change(on_strength, [*held.parts, slider], numbers, **QUICK)
    slider.change(
        on_slide,
        [*held.parts, slider],
        pictures,
        trigger_mode="always_last",
        show_progress="minimal",
        **PRIVATE,
        **DEVICE,
    )
    example.click(_fill, None, [form.alert, form.target, form.control], **PRIVATE, queue=False)
    return side


def _form() -> _Form:
    target, target_zip = _side(
        forget_text.TARGET_HEADING, forget_text.TARGET_LABEL, FORGET.target, name="forget-target"
    )
    control, control_zip = _side(
        forget_text.CONTROL_HEADING, forget_text.CONTROL_LABEL, FORGET.control, name="forget-control"
    )
    usual = atlas.NegateConfig()
    with gr.Accordion(text.SETTINGS, open=False, elem_id="forget-settings"):
        keep = gr.Slider(
            0,
            PERCENT,
            PERCENT * usual.keep,
            step=1,
            label=forget_text.KEEP_LABEL,
            info=forget_text.KEEP_HELP,
            elem_id="forget-keep",
        )
        seed = gr.Number(0, label=text.SEED_LABEL, info=text.SEED_HELP, precision=0, minimum=0)
    start = components.start_button(forget_text.START, name="forget-start")
    alert = components.html_area(name="forget-alert")
    for archive, pictures in ((target_zip, target), (control_zip, control)):
        archive.upload(samples_from_zip(pictures), [archive], [alert, pictures], queue=False, **PRIVATE)
    return _Form(target, control, [keep, seed], alert, start)


def _side(
    title: str, label: str, rows: tuple[ClassRow, ...], *, name: str
) -> tuple[gr.Gallery, gr.UploadButton]:
    components.html_area(heading(title) + note(forget_text.FOLDERS_HELP), name=f"{name}-lead")
    pictures = components.given_pictures(_items(rows), label=label, name=name)
    with gr.Row(elem_classes="at-buttons"):
        archive = components.folder_or_zip(text.FILL_FROM_FOLDER, text.FILL_FROM_ZIP, name=name)
    return pictures, archive


def _forgetting(
    answering: Answering, runs: Runs, held: ResultState[ForgetResult]
) -> Callable[..., Iterator[Frame]]:
    def on_forget(  # noqa: PLR0917 - an event, which Gradio calls
        request: gr.Request,
        kept: ForgetResult | None,
        shows: str,
        target: GalleryItems,
        control: GalleryItems,
        keep: float,
        seed: float | None,
    ) -> Iterator[Frame]:
        try:
            engine = answering()
            sides = rows_of(samples_of(target)), rows_of(samples_of(control))
            wish = ForgetRequest.of(*sides, keep=float(keep) / PERCENT, seed=int(seed or 0))
            with runs.sign(request.session_hash) as sign:
                for state in forget(engine, wish, sign=sign):
                    yield _frame(state)
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            yield _refused(user_message(error), held, kept, shows)

    return on_forget


def _frame(state: ForgetProgress) -> Frame:
    alert = alerts.left_out_html(state.taught.left_out)
    if state.kept is None:
        first = state.taught.phase == "read" and state.taught.index == 0
        former = [gr.update(visible=False), "", ""] if first else [gr.skip()] * 3  # of what was there before
        progress, same = run_cards.progress_html(state.taught), [gr.skip()] * len(holding(None))
        return [alert, progress, *same, *former, gr.update(visible=True)]
    return [alert, _headline(state.kept), *holding(state.kept), *_slid(state.kept), gr.update(visible=False)]


def _refused(message: str, held: ResultState[ForgetResult], kept: ForgetResult | None, shows: str) -> Frame:
    """The sentence; the result that was there stays, unless it has expired."""
    same, hidden = [gr.skip()] * len(held.parts), gr.update(visible=False)
    try:
        result = held.shown(kept, shows)
        headline = _headline(result)
    except atlas.AtlasError as expired:
        result, headline = None, _waiting(str(expired))
    return [alerts.alert_html(message), headline, *same, *_slid(result), hidden]


def _slid(kept: ForgetResult | None) -> Frame:
    """The slider at full strength, its numbers, and no pictures yet."""
    return [gr.update(value=FULL, visible=kept is not None), _numbers(kept, FULL), _unseen(kept)]


def _headline(kept: ForgetResult | None) -> str:
    if kept is None:
        return _waiting(forget_text.WAITING)
    return forget_cards.verdict_html(kept, remark=forget_text.EXAMPLE_NOTE if kept.example else "")


def _waiting(words: str) -> str:
    return f"<section class='at-run'>{heading(text.RESULT_HEADING)}{note(words)}</section>"


def _numbers(kept: ForgetResult | None, strength: float) -> str:
    return "" if kept is None else forget_cards.numbers_html(kept, strength / PERCENT)


def _unseen(kept: ForgetResult | None) -> str:
    return "" if kept is None else note(forget_text.SEE_PICTURES)


def _taking(
    answering: Answering, held: ResultState[ForgetResult], recipe: gr.DownloadButton, own: str | None
) -> Callable[[ForgetResult | None, str], Frame]:
    """The recipe's file and the line that makes it."""

    def to_take(kept: ForgetResult | None, shows: str) -> Frame:
        hidden = gr.update(visible=False)
        try:
            result = held.shown(kept, shows)
            if result is None:
                return [hidden, ""]
            with TemporaryDirectory() as folder:
                path = components.handed_over(recipe, save_recipe(result.recipe, Path(folder)))
            line = shell_line(result, Path(path).name, origin=origin_of(answering(), bundled=own))
            return [
                gr.update(value=path, visible=True),
                inside_cards.code_html(forget_text.SHELL_HEADING, line),
            ]
        except Exception as error:
            return [hidden, alerts.alert_html(user_message(error))]

    return to_take


def _fill() -> Frame:
    return [alerts.NOTHING, _items(FORGET.target), _items(FORGET.control)]


def _items(rows: tuple[ClassRow, ...]) -> list[tuple[str, str | None]]:
    return [(path, row.name) for row in rows for path in row.paths]
