"""The state in which a visitor tries what was taught: any image is answered at once, and can be corrected.

Left the images and the words to choose from, right the result. Answers take turns with the steps of a run
(`app.lane`), so that an image is answered while one is under way: by the best recipe so far.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import text, views
from app.events import DEVICE, PRIVATE, QUICK, UNCHANGED, Updates, Values, stop_run_with, user_message
from app.examples import ASK_EXAMPLES
from app.handlers.ask import AskProgress, ask, split_class_names
from app.handlers.few_shot import SavedResult
from app.handlers.live import LiveAnswer, LiveLane
from app.handlers.trying import TryProgress, add_to_class, answered_by, correct_label, try_images
from app.handlers.uploads import UploadedImage
from app.limits import LIMITS
from app.predictors import Predictors
from app.session import CurrentModel, Runs, StopSignal
from app.shares import Shares
from app.tabs import components
from app.tabs.class_rows import ClassRows
from app.tabs.galleries import files_in, fill_from_zip, items_of
from app.tabs.result import ResultSide
from app.tabs.result_state import ResultState

__all__ = ["TryTab"]


@dataclass(frozen=True)
class TryTab:
    """What the visitor gives to try, and the result's side."""

    current: CurrentModel
    predictors: Predictors
    samples: gr.Gallery
    camera: gr.HTML
    live_answer: gr.HTML
    words: gr.Textbox
    ask: gr.Button
    stop: gr.Button
    status: gr.HTML
    learn_again: gr.Button
    examples: gr.HTML
    side: ResultSide
    asking: Runs

    @classmethod
    def create(
        cls,
        current: CurrentModel,
        predictors: Predictors,
        runs: Runs,
        *,
        example: SavedResult | None,
        file: Path,
        shares: Shares,
        own_bank: bool,
    ) -> TryTab:
        """Lay it out inside the current Blocks; it opens on the result `example`, whose recipe is `file`."""
        state = ResultState[SavedResult].create(example, name="shows", expired=text.result.EXPIRED)
        shown = () if example is None else example.samples
        with gr.Row(elem_classes="at-columns"):
            with gr.Column(scale=4, min_width=320, elem_id="try-images"):
                components.html_area(
                    views.render_lead(text.trying.HEADING, text.trying.LEAD), name="samples-lead"
                )
                items = [UploadedImage(sample.path, sample.label) for sample in shown]
                samples = components.samples_gallery(items_of(items))
                camera = components.live_camera(views.render_live(str(samples.elem_id)), name="live")
                live_answer = components.html_area(name="live-answer")
                with gr.Row(elem_id="samples-buttons", elem_classes="at-buttons"):
                    archive = components.folder_or_zip(name="samples")
                words = components.words_box(() if example is None else example.recipe.classes)
                with gr.Row(elem_id="ask-buttons", elem_classes="at-buttons"):
                    ask_button = gr.Button(text.trying.ANSWER, size="sm", elem_id="ask")
                    stop = components.stop_button(name="stop")
                status = components.html_area(views.render_status(""), name="status")
                learn_again = gr.Button(
                    text.trying.LEARN_AGAIN,
                    variant="primary",
                    visible=False,
                    elem_id="learn-again",
                    elem_classes="at-start",
                )
                examples = components.example_row(views.render_ask_examples(ASK_EXAMPLES), name="examples")
            side = ResultSide.create(current, runs, state, words, shares=shares, own_bank=own_bank, file=file)
        fill_from_zip(archive, samples, side.alert)
        asking = Runs()
        stop_run_with(stop, asking)
        return cls(
            current,
            predictors,
            samples,
            camera,
            live_answer,
            words,
            ask_button,
            stop,
            status,
            learn_again,
            examples,
            side,
            asking,
        )

    @property
    def inputs(self) -> set[gr.components.Component]:
        """What answering needs."""
        return {*self.side.state.components, self.samples, self.words}

    @property
    def outputs(self) -> list[Any]:
        """What answering updates."""
        side = self.side
        return [side.alert, side.compare, self.status, self.stop, *side.state.components]

    def wire(self, rows: ClassRows) -> None:
        """Answer images as they come, and put corrected ones into `rows`."""

        def on_correct(event: gr.EventData, values: Values) -> Updates:
            try:
                result = self.side.state.read(values)
                if result is None:
                    raise atlas.AtlasError(text.trying.NOTHING_TAUGHT)
                image, label = str(event.image), str(event.label)
                corrected = correct_label(result, image, label)
                filled = add_to_class(rows.read(values), result.recipe.classes, image, label)
                if len(filled) > LIMITS.rows:
                    raise atlas.AtlasError(text.teach.many_rows(len(filled)))
            except Exception as error:
                return {self.side.alert: views.render_alert(user_message(error))}
            count = next(len(row.paths) for row in filled if image in row.paths)
            return {
                self.side.alert: views.render_notice(text.trying.corrected(label, count)),
                self.side.compare: views.render_comparison(corrected, first=[image]),
                **self.side.state.store(corrected),
                **rows.fill(filled),
                self.learn_again: gr.update(visible=True),
            }

        def on_ask_words(event: gr.EventData) -> str:
            return ASK_EXAMPLES[int(event.example)].class_text

        def on_ask_images(class_text: str) -> list[str] | None:
            """The images that go with the words, which have to be on the page before."""
            found = [list(one.paths) for one in ASK_EXAMPLES if one.class_text == class_text]
            return found[0] if found else None

        lane = LiveLane()

        def on_frame(event: gr.EventData, values: Values) -> str:
            number = 0
            try:
                number = int(event.number)
                result, names = self.side.state.read(values), split_class_names(values[self.words] or "")
                engine = self.current.engine()
                answer = lane.answer(engine, self.predictors, result, names, str(event.frame))
            except Exception as error:
                answer = LiveAnswer(note=user_message(error))
            return views.render_live_answer(answer, number)

        inputs = {*self.side.state.components, self.words}
        self.camera.input(on_frame, inputs, self.live_answer, trigger_mode="multiple", **QUICK)
        triggers = [self.samples.change, self.ask.click, self.words.submit]
        gr.on(triggers, trigger_mode="always_last", **self._answer_event())
        chosen = self.examples.click(on_ask_words, None, self.words, queue=False, **PRIVATE)
        self.answer_after(chosen.then(on_ask_images, self.words, self.samples, **QUICK))
        self.side.compare.submit(
            on_correct,
            {*self.side.state.components, *rows.inputs},
            [
                self.side.alert,
                self.side.compare,
                *self.side.state.components,
                *rows.outputs,
                self.learn_again,
            ],
            **QUICK,
        )
        self.side.bring_recipe(self.samples)

    def fill_after(self, event: Any) -> None:  # noqa: ANN401 - Gradio's dependency
        """Show the images of a result in the gallery, after the event that brought the result.

        They come in an event of their own: a change of the gallery is answered by the result that the page
        shows at that moment.
        """

        def on_fill(values: Values) -> Updates:
            try:
                result = self.side.state.read(values)
            except atlas.AtlasError:  # it has expired meanwhile
                return UNCHANGED
            shown = () if result is None else result.samples
            return {self.samples: items_of([UploadedImage(one.path, one.label) for one in shown]) or None}

        event.then(on_fill, self.side.state.components, [self.samples], **QUICK)

    def answer_after(self, event: Any) -> None:  # noqa: ANN401 - Gradio's dependency
        """Answer the images that came while another event was under way."""
        event.then(**self._answer_event())

    def _answer_event(self) -> dict[str, Any]:
        """The event that answers every image to try, as Gradio takes it."""

        def on_try(request: gr.Request, values: Values) -> Iterator[Updates]:
            try:
                with self.asking.begin(request.session_hash) as stop_signal:
                    yield from self._answer(values, stop_signal)
            except Exception as error:  # the border: a visitor gets a sentence, whatever happened
                yield {
                    self.side.alert: views.render_alert(user_message(error)),
                    self.status: views.render_status(""),
                    self.stop: components.hide_stop(),
                }

        return {
            "fn": on_try,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "show_progress": "minimal",
            "show_progress_on": self.status,
            **PRIVATE,
            **DEVICE,
        }

    def _answer(self, values: Values, stop_signal: StopSignal) -> Iterator[Updates]:
        """By the result where it knows these words, else by the words alone."""
        files, names = files_in(values[self.samples]), split_class_names(values[self.words] or "")
        began, engine = time.monotonic(), self.current.engine()
        taught = answered_by(self.side.state.read(values), names)
        if taught is not None:
            for tried in try_images(engine, self.predictors, taught, files, stop_signal=stop_signal):
                yield self._show_answers(tried, time.monotonic() - began)
        elif names:
            paths, words = [file.path for file in files], ", ".join(names)
            for asked in ask(engine, paths, words, stop_signal=stop_signal):
                yield self._show_asked(asked)
        else:
            yield self._show_nothing(text.trying.NOTHING_TAUGHT)

    # ---- what an event gives back

    def _show_answers(self, progress: TryProgress, seconds: float) -> Updates:
        if not progress.total:
            return {**self.side.show_answers(progress), **self._show_nothing(text.trying.NO_IMAGES)}
        fresh = progress.finished and progress.fresh
        line = text.trying.answered(len(progress.fresh), seconds) if fresh else ""
        if not progress.finished:
            line = text.ask.progress(progress.seen, progress.total)
        return {
            **self.side.show_answers(progress),
            self.status: views.render_status(text.ask.STOPPED if progress.stopped else line),
            self.stop: components.hide_stop() if progress.finished else gr.update(visible=True),
        }

    def _show_asked(self, progress: AskProgress) -> Updates:
        updates: Updates = {
            self.side.alert: views.render_left_out(progress.left_out),
            self.status: views.render_status(_status_line(progress)),
            self.stop: components.hide_stop() if progress.finished else gr.update(visible=True),
        }
        if progress.answers or progress.finished:
            updates[self.side.compare] = views.render_answers(progress)
        return updates

    def _show_nothing(self, note: str) -> Updates:
        return {
            self.side.compare: views.render_note(note),
            self.status: views.render_status(""),
            self.stop: components.hide_stop(),
        }


def _status_line(progress: AskProgress) -> str:
    if progress.stopped:
        return text.ask.STOPPED
    if progress.finished:
        return text.ask.finished(len(progress.answers), progress.classes)
    return text.ask.progress(progress.seen, progress.total)
