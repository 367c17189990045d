"""The tab that learns nothing: pictures and words in, a ranking for each picture out. Knows nothing of torch.

The page and the client share one handler. The page's events are private, since HTML is of no use to a
program; programs call `/predict`, whose names and types are kept stable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradio as gr

from app import alerts, api_text, cards, components, text
from app.engines import Answering
from app.events import DEVICE, PRIVATE, QUICK, user_message
from app.examples import EXAMPLES
from app.handlers.ask import Asked, answer_rows, ask
from app.markup import note
from app.state import Runs
from app.tabs.stopping import leaving, stopping

__all__ = ["ask_tab"]

Frame = tuple[Any, ...]  # one value for each of: alert, status, answers, stop
GalleryItem = tuple[str, str | None]


def ask_tab(answering: Answering, runs: Runs, opening: Asked) -> None:
    """Lay out the tab inside the current Blocks; it shows `opening`, the first example, already answered."""
    components.html_area(note(text.ASK_LEAD), name="ask-lead")
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=5, min_width=320):
            images = components.drop_zone()
            classes = components.class_box()
            ask_button, stop = components.ask_buttons()
            alert = components.html_area(name="alert")
            examples = components.example_row(cards.examples_html(EXAMPLES))
        with gr.Column(scale=7, min_width=320):
            leave = components.leave_button(name="ask-leave")
            status = components.html_area(cards.status_html(text.OPENING), name="status")
            answers = components.html_area(cards.answers_html(opening), name="answers")
    run: dict[str, Any] = {
        "fn": _page_handler(answering, runs),
        "inputs": [images, classes],
        "outputs": [alert, status, answers, stop],
        "show_progress": "minimal",
        "show_progress_on": status,
        **PRIVATE,
        **DEVICE,
    }
    filled = examples.click(_fill, outputs=[images, classes], queue=False, **PRIVATE)
    for start in (ask_button.click, classes.submit, filled.then):
        start(**run)
    stop.click(stopping(runs), None, [stop], **QUICK)
    leaving(leave, runs, alert)
    _client_endpoint(answering)


def _page_handler(answering: Answering, runs: Runs) -> Callable[..., Iterator[Frame]]:
    def on_ask(
        request: gr.Request, images: list[GalleryItem] | None, class_text: str | None
    ) -> Iterator[Frame]:
        paths = [path for path, _ in images or []]
        try:
            with runs.sign(request.session_hash) as sign:
                for asked in ask(answering(), paths, class_text or "", sign=sign):
                    yield _frame(asked)
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            yield _refused(user_message(error))

    return on_ask


def _frame(asked: Asked) -> Frame:
    status = cards.status_html(_status(asked))
    answers = cards.answers_html(asked) if asked.answers or asked.finished else gr.skip()
    return alerts.left_out_html(asked.left_out), status, answers, gr.update(visible=not asked.finished)


def _status(asked: Asked) -> str:
    if asked.stopped:
        return text.STOPPED
    if asked.finished:
        return text.finished(len(asked.answers), asked.classes)
    return text.progress(asked.seen, asked.total)


def _refused(message: str) -> Frame:
    return alerts.alert_html(message), cards.status_html(""), gr.skip(), gr.update(visible=False)


def _fill(event: gr.EventData) -> tuple[list[str], str]:
    example = EXAMPLES[int(event.example)]
    return list(example.paths), example.class_text


def _client_endpoint(answering: Answering) -> None:
    """`/predict` for programs: files and class names in, plain rows out."""

    def predict(images: Sequence[str] | None, classes: str | None) -> dict[str, object]:
        try:
            *_, last = ask(answering(), list(images or []), classes or "")
        except Exception as error:
            raise gr.Error(user_message(error), print_exception=False) from None
        return answer_rows(last)

    with gr.Row(visible=False):
        files = gr.File(label=api_text.IMAGES, file_count="multiple", type="filepath")
        names = gr.Textbox(label=api_text.CLASSES)
        rows = gr.JSON(label=api_text.ROWS)
        call = gr.Button()
    call.click(
        predict,
        inputs=[files, names],
        outputs=rows,
        api_name="predict",
        api_description=api_text.PREDICT,
        **DEVICE,
    )
