"""The tab that forgets: classes to lose and classes to keep in, a slider with the price of each strength out.

Left what the visitor gives, right the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
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
    html_errors,
    leave_queue_with,
    long_run,
    stop_run_with,
    user_message,
)
from app.examples import FORGET_EXAMPLE
from app.handlers.forget import (
    STRENGTHS,
    ForgetProgress,
    ForgetRequest,
    ForgetResult,
    compare_at,
    forget,
    group_by_class,
    shell_command,
)
from app.handlers.takeaway import origin_of, save_recipe
from app.handlers.uploads import ClassRow
from app.prepared_examples import load_forget
from app.session import CurrentModel, Runs
from app.tabs import components
from app.tabs.galleries import files_in, fill_from_class_zip
from app.tabs.result_state import ResultState

__all__ = ["ForgetSide", "forget_tab"]

PERCENT = 100
FULL_STRENGTH = PERCENT * STRENGTHS[-1]


@dataclass(frozen=True)
class _ForgetForm:
    """The left side: what the visitor gives."""

    target: gr.Gallery
    control: gr.Gallery
    keep: gr.Slider
    seed: gr.Number
    start: gr.Button
    alert: gr.HTML

    @classmethod
    def create(cls) -> _ForgetForm:
        words = text.forget
        target, target_zip = _create_gallery(
            words.TARGET_HEADING, words.TARGET_LABEL, FORGET_EXAMPLE.target, name="forget-target"
        )
        control, control_zip = _create_gallery(
            words.CONTROL_HEADING, words.CONTROL_LABEL, FORGET_EXAMPLE.control, name="forget-control"
        )
        with gr.Accordion(text.page.SETTINGS, open=False, elem_id="forget-settings"):
            keep = gr.Slider(
                0,
                PERCENT,
                PERCENT * atlas.NegateConfig().keep,
                step=1,
                label=words.KEEP_LABEL,
                info=words.KEEP_HELP,
                elem_id="forget-keep",
            )
            seed = components.seed_box()
        start = components.start_button(words.START, name="forget-start")
        alert = components.html_area(name="forget-alert")
        fill_from_class_zip(target_zip, target, alert)
        fill_from_class_zip(control_zip, control, alert)
        return cls(target, control, keep, seed, start, alert)

    @property
    def inputs(self) -> set[gr.components.Component]:
        return {self.target, self.control, self.keep, self.seed}

    def read(self, values: Values) -> ForgetRequest:
        return ForgetRequest.of(
            group_by_class(files_in(values[self.target])),
            group_by_class(files_in(values[self.control])),
            keep=float(values[self.keep]) / PERCENT,
            seed=int(values[self.seed] or 0),
        )


@dataclass(frozen=True)
class ForgetSide:
    """The right side: its components, and how progress, results and refusals are shown in them."""

    current: CurrentModel
    state: ResultState[ForgetResult]
    bundled: str | None  # the backbone whose bank ships, if this page opens with it
    alert: gr.HTML  # among what the visitor gives
    stop: gr.Button
    run: gr.HTML
    strength: gr.Slider
    numbers: gr.HTML
    images: gr.HTML
    recipe: gr.DownloadButton
    command: gr.HTML

    @classmethod
    def create(
        cls,
        current: CurrentModel,
        runs: Runs,
        state: ResultState[ForgetResult],
        alert: gr.HTML,
        *,
        own_bank: bool,
    ) -> ForgetSide:
        """Lay it out in a column; it opens on the state's example."""
        example = state.example
        with gr.Column(scale=7, min_width=320):
            stop = components.stop_button(name="forget-stop")
            leave = components.leave_button(name="forget-leave")
            run = components.html_area(_render_verdict(example), name="forget-run")
            strength = gr.Slider(
                0,
                FULL_STRENGTH,
                FULL_STRENGTH,
                step=PERCENT * STRENGTHS[1],
                label=text.forget.STRENGTH_LABEL,
                info=text.forget.STRENGTH_HELP,
                visible=example is not None,
                elem_id="forget-strength",
            )
            numbers = components.html_area(_render_numbers(example, FULL_STRENGTH), name="forget-numbers")
            images = components.html_area(_render_hint(example), name="forget-pictures")
            recipe = gr.DownloadButton(
                text.forget.RECIPE_DOWNLOAD, size="sm", visible=False, elem_id="forget-recipe"
            )
            command = components.html_area(name="forget-lines")
        leave_queue_with(leave, runs, alert)
        stop_run_with(stop, runs)
        bundled = current.engine().backbone.name if own_bank else None
        side = cls(current, state, bundled, alert, stop, run, strength, numbers, images, recipe, command)
        side._wire()
        return side

    @property
    def outputs(self) -> list[Any]:
        """What an event may update that brings progress, a result or a refusal."""
        return [
            self.alert,
            self.run,
            *self.state.components,
            self.strength,
            self.numbers,
            self.images,
            self.stop,
        ]

    # ---- what an event gives back

    def show_progress(self, progress: ForgetProgress) -> Updates:
        """How far it has come or, at the end, its result."""
        result = progress.result
        updates: Updates = {
            self.alert: views.render_left_out(progress.run.left_out),
            self.stop: gr.update(visible=True) if result is None else components.hide_stop(),
        }
        if result is not None:
            return {
                **updates,
                self.run: _render_verdict(result),
                **self.state.store(result),
                **self._show_strengths(result),
            }
        updates[self.run] = views.render_progress(progress.run)
        if progress.run.just_begun:  # nothing of a former result stays in sight
            updates[self.strength] = gr.update(visible=False)
            updates |= {self.numbers: views.EMPTY, self.images: views.EMPTY}
        return updates

    def show_refusal(self, message: str, values: Values) -> Updates:
        """The sentence; the result that was there stays, unless it has expired."""
        updates: Updates = {self.alert: views.render_alert(message), self.stop: components.hide_stop()}
        try:
            result = self.state.read(values)
        except atlas.AtlasError as expired:
            return {**updates, self.run: views.render_waiting(str(expired)), **self._show_strengths(None)}
        return {**updates, self.run: _render_verdict(result), **self._show_strengths(result)}

    def clear(self) -> Updates:
        """No result."""
        return {self.run: _render_verdict(None), **self.state.store(None), **self._show_strengths(None)}

    def _show_strengths(self, result: ForgetResult | None) -> Updates:
        """The slider at full strength, its numbers, and no images yet."""
        return {
            self.strength: gr.update(value=FULL_STRENGTH, visible=result is not None),
            self.numbers: _render_numbers(result, FULL_STRENGTH),
            self.images: _render_hint(result),
        }

    # ---- wiring

    def then_show_panels(self, event: Any) -> None:  # noqa: ANN401 - Gradio's dependency
        """Show what can be taken away after an event that may have brought a result."""

        def on_forget_result(values: Values) -> Updates:
            hidden = gr.update(visible=False)
            try:
                result = self.state.read(values)
                if result is None:
                    return {self.recipe: hidden, self.command: views.EMPTY}
                with TemporaryDirectory() as folder:
                    path = components.copy_to_cache(self.recipe, save_recipe(result.recipe, Path(folder)))
                origin = origin_of(self.current.engine(), bundled=self.bundled)
                command = shell_command(result, Path(path).name, origin=origin)
            except Exception as error:
                return {self.recipe: hidden, self.command: views.render_alert(user_message(error))}
            return {
                self.recipe: gr.update(value=path, visible=True),
                self.command: views.render_code(text.forget.SHELL_HEADING, command),
            }

        event.then(on_forget_result, self.state.components, [self.recipe, self.command], **QUICK)

    def _wire(self) -> None:
        @html_errors
        def on_strength(values: Values) -> str:
            return _render_numbers(self.state.read(values), values[self.strength])

        @html_errors
        def on_strength_images(values: Values) -> str:
            result = self.state.read(values)
            if result is None:
                return views.EMPTY
            sides = compare_at(self.current.engine(), result, values[self.strength] / PERCENT)
            return views.render_forget_images(*sides)

        inputs = {*self.state.components, self.strength}
        self.strength.change(on_strength, inputs, self.numbers, **QUICK)
        self.strength.change(
            on_strength_images,
            inputs,
            self.images,
            trigger_mode="always_last",
            show_progress="minimal",
            **PRIVATE,
            **DEVICE,
        )


def forget_tab(current: CurrentModel, runs: Runs, *, own_bank: bool) -> ForgetSide:
    """Lay out the tab inside the current Blocks; it opens on the worked example."""
    state = ResultState[ForgetResult].create(
        load_forget(current.engine()), name="forget-shows", expired=text.forget.EXPIRED
    )
    components.html_area(views.render_note(text.forget.LEAD), name="forget-lead")
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=4, min_width=320):
            example = components.example_row(
                views.render_forget_example(FORGET_EXAMPLE), name="forget-examples"
            )
            form = _ForgetForm.create()
        side = ForgetSide.create(current, runs, state, form.alert, own_bank=own_bank)

    @long_run
    def on_forget(request: gr.Request, values: Values) -> Iterator[Updates]:
        try:
            engine = current.engine()
            wanted = form.read(values)
            with runs.begin(request.session_hash) as stop_signal:
                for progress in forget(engine, wanted, stop_signal=stop_signal):
                    yield side.show_progress(progress)
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            yield side.show_refusal(user_message(error), values)

    def on_example() -> Updates:
        return {
            form.alert: views.EMPTY,
            form.target: _gallery_items(FORGET_EXAMPLE.target),
            form.control: _gallery_items(FORGET_EXAMPLE.control),
        }

    forgotten = form.start.click(
        on_forget,
        {*side.state.components, *form.inputs},
        side.outputs,
        show_progress="minimal",
        show_progress_on=side.run,
        **PRIVATE,
        **DEVICE,
    )
    side.then_show_panels(forgotten)
    example.click(on_example, None, [form.alert, form.target, form.control], **PRIVATE, queue=False)
    return side


def _create_gallery(
    title: str, label: str, rows: tuple[ClassRow, ...], *, name: str
) -> tuple[gr.Gallery, gr.UploadButton]:
    components.html_area(views.render_lead(title, text.forget.FOLDERS_HELP), name=f"{name}-lead")
    gallery = components.zip_gallery(_gallery_items(rows), label=label, name=name)
    with gr.Row(elem_classes="at-buttons"):
        archive = components.folder_or_zip(name=name)
    return gallery, archive


def _gallery_items(rows: tuple[ClassRow, ...]) -> list[tuple[str, str | None]]:
    return [(path, row.name) for row in rows for path in row.paths]


def _render_verdict(result: ForgetResult | None) -> str:
    if result is None:
        return views.render_waiting(text.forget.WAITING)
    return views.render_forget_verdict(result, remark=text.forget.EXAMPLE_NOTE if result.example else "")


def _render_numbers(result: ForgetResult | None, percent: float) -> str:
    return views.EMPTY if result is None else views.render_forget_numbers(result, percent / PERCENT)


def _render_hint(result: ForgetResult | None) -> str:
    return views.EMPTY if result is None else views.render_note(text.forget.SEE_IMAGES)
