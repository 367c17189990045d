"""The tab that learns nothing: images and class names in, a ranking for each image out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app import text, views
from app.events import DEVICE, PRIVATE, Updates, leave_queue_with, stop_run_with, user_message
from app.examples import ASK_EXAMPLES
from app.handlers.ask import AskProgress, ask
from app.session import CurrentModel, Runs
from app.tabs import components
from app.tabs.galleries import GalleryItems, paths_in

__all__ = ["ask_tab"]


@dataclass(frozen=True)
class _AskTab:
    """What a question changes on the page."""

    alert: gr.HTML
    status: gr.HTML
    answers: gr.HTML
    stop: gr.Button

    @property
    def outputs(self) -> list[Any]:
        return [self.alert, self.status, self.answers, self.stop]

    def show_progress(self, progress: AskProgress) -> Updates:
        updates: Updates = {
            self.alert: views.render_left_out(progress.left_out),
            self.status: views.render_ask_status(_status_line(progress)),
            self.stop: gr.update(visible=not progress.finished),
        }
        if progress.answers or progress.finished:
            updates[self.answers] = views.render_answers(progress)
        return updates

    def show_refusal(self, message: str) -> Updates:
        return {
            self.alert: views.render_alert(message),
            self.status: views.render_ask_status(""),
            self.stop: gr.update(visible=False),
        }


def ask_tab(current: CurrentModel, runs: Runs, opening: AskProgress) -> None:
    """Lay out the tab inside the current Blocks; it shows `opening`, the first example, already answered."""
    components.html_area(views.render_note(text.ask.LEAD), name="ask-lead")
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=5, min_width=320):
            images = components.ask_gallery()
            classes = components.class_names_box(name="classes")
            start, stop = components.run_buttons(text.ask.START, start="ask", stop="stop")
            alert = components.html_area(name="alert")
            examples = components.example_row(views.render_ask_examples(ASK_EXAMPLES), name="examples")
        with gr.Column(scale=7, min_width=320):
            leave = components.leave_button(name="ask-leave")
            status = components.html_area(views.render_ask_status(text.ask.OPENING), name="status")
            answers = components.html_area(views.render_answers(opening), name="answers")
    tab = _AskTab(alert, status, answers, stop)

    def on_ask(request: gr.Request, items: GalleryItems, class_text: str | None) -> Iterator[Updates]:
        try:
            with runs.begin(request.session_hash) as stop_signal:
                asking = ask(current.engine(), paths_in(items), class_text or "", stop_signal=stop_signal)
                for progress in asking:
                    yield tab.show_progress(progress)
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            yield tab.show_refusal(user_message(error))

    def on_example(event: gr.EventData) -> Updates:
        example = ASK_EXAMPLES[int(event.example)]
        return {images: list(example.paths), classes: example.class_text}

    filled = examples.click(on_example, None, [images, classes], queue=False, **PRIVATE)
    for begin in (start.click, classes.submit, filled.then):
        begin(
            on_ask,
            [images, classes],
            tab.outputs,
            show_progress="minimal",
            show_progress_on=status,
            **PRIVATE,
            **DEVICE,
        )
    stop_run_with(stop, runs)
    leave_queue_with(leave, runs, alert)


def _status_line(progress: AskProgress) -> str:
    if progress.stopped:
        return text.ask.STOPPED
    if progress.finished:
        return text.ask.finished(len(progress.answers), progress.classes)
    return text.ask.progress(progress.seen, progress.total)
