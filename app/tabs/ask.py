"""The first tab: pictures and words in, a ranking for each picture out. Knows nothing of torch.

The page and the client share one handler. The page's events are private, since HTML is of no use to a
program; programs call `/predict`, whose names and types are kept stable.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import alerts, cards, components, text
from app.examples import EXAMPLES
from app.handlers.ask import Asked, answer_rows, ask

__all__ = ["DEVICE", "ask_tab"]

# Every event that computes shares this lane: one at a time on the device, whatever it is for.
DEVICE: dict[str, Any] = {"concurrency_id": "device", "concurrency_limit": 1}

_log = logging.getLogger(__name__)

Frame = tuple[Any, ...]  # one value for each of: alert, status, answers, stop
GalleryItem = tuple[str, str | None]


def ask_tab(engine: atlas.Atlas, opening: Asked) -> None:
    """Lay out the tab inside the current Blocks; it shows `opening`, the first example, already answered."""
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=5, min_width=320):
            images = components.drop_zone()
            classes = components.class_box()
            ask_button, stop = components.ask_buttons()
            alert = components.html_area(name="alert")
            examples = components.example_row(cards.examples_html(EXAMPLES))
        with gr.Column(scale=7, min_width=320):
            status = components.html_area(cards.status_html(text.OPENING), name="status")
            answers = components.html_area(cards.answers_html(opening), name="answers")
    run: dict[str, Any] = {
        "fn": _page_handler(engine),
        "inputs": [images, classes],
        "outputs": [alert, status, answers, stop],
        "show_progress": "minimal",
        "show_progress_on": status,
        "scroll_to_output": True,
        "api_visibility": "private",
        **DEVICE,
    }
    filled = examples.click(_fill, outputs=[images, classes], queue=False, api_visibility="private")
    runs = [ask_button.click(**run), classes.submit(**run), filled.then(**run)]
    stop.click(_stopped, outputs=[status, stop], cancels=runs, queue=False, api_visibility="private")
    _client_endpoint(engine)


def _page_handler(engine: atlas.Atlas) -> Callable[[list[GalleryItem] | None, str | None], Iterator[Frame]]:
    def on_ask(images: list[GalleryItem] | None, class_text: str | None) -> Iterator[Frame]:
        paths = [path for path, _ in images or []]
        try:
            for asked in ask(engine, paths, class_text or ""):
                yield _frame(asked)
        except atlas.AtlasError as error:
            yield _refused(str(error))
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            _log_without_words(error)
            yield _refused(text.BROKEN)

    return on_ask


def _frame(asked: Asked) -> Frame:
    status = cards.status_html(_status(asked))
    answers = cards.answers_html(asked) if asked.answers or asked.finished else gr.skip()
    return alerts.left_out_html(asked.left_out), status, answers, gr.update(visible=not asked.finished)


def _status(asked: Asked) -> str:
    if asked.finished:
        return text.finished(len(asked.answers), asked.classes)
    return text.progress(asked.seen, asked.total)


def _refused(message: str) -> Frame:
    return alerts.alert_html(message), cards.status_html(""), gr.skip(), gr.update(visible=False)


def _stopped() -> tuple[str, Any]:
    return cards.status_html(text.STOPPED), gr.update(visible=False)


def _fill(event: gr.EventData) -> tuple[list[str], str]:
    example = EXAMPLES[int(event.example)]
    return list(example.paths), example.class_text


def _client_endpoint(engine: atlas.Atlas) -> None:
    """`/predict` for programs: files and class names in, plain rows out."""

    def predict(images: Sequence[str] | None, classes: str | None) -> dict[str, object]:
        try:
            *_, last = ask(engine, list(images or []), classes or "")
        except atlas.AtlasError as error:
            raise gr.Error(str(error), print_exception=False) from None
        except Exception as error:
            _log_without_words(error)
            raise gr.Error(text.BROKEN, print_exception=False) from None
        return answer_rows(last)

    with gr.Row(visible=False):
        files = gr.File(label=text.API_IMAGES, file_count="multiple", type="filepath")
        names = gr.Textbox(label=text.API_CLASSES)
        rows = gr.JSON(label=text.API_ROWS)
        call = gr.Button()
    call.click(
        predict,
        inputs=[files, names],
        outputs=rows,
        api_name="predict",
        api_description=text.API_PREDICT,
        **DEVICE,
    )


def _log_without_words(error: Exception) -> None:
    """Log where it happened, but not the message: it may hold a visitor's words or file names."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    _log.error("an event failed with %s\n%s", type(error).__name__, frames)
