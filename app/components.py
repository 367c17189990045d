"""The pieces that tabs are made of, each with its label and help. Know nothing of models or events."""

from __future__ import annotations

import gradio as gr

from app import text

__all__ = ["ask_buttons", "class_box", "drop_zone", "example_row", "html_area"]

# One listener on the frame: its inside is replaced as the value changes.
_TELL_WHICH_EXAMPLE = """
element.addEventListener("click", (event) => {
    const button = event.target.closest("[data-example]");
    if (button) trigger("click", { example: Number(button.dataset.example) });
});
"""


def drop_zone() -> gr.Gallery:
    """Several pictures: dropped, chosen or pasted; handed on as paths, never decoded by Gradio."""
    return gr.Gallery(
        label=text.IMAGES_LABEL,
        type="filepath",
        file_types=["image"],
        sources=["upload", "clipboard"],
        columns=3,
        fit_columns=False,
        height=210,
        object_fit="cover",
        interactive=True,
        buttons=[],
        elem_id="images",
    )


def class_box() -> gr.Textbox:
    """Class names, one or more lines of them."""
    return gr.Textbox(
        label=text.CLASSES_LABEL,
        info=text.CLASSES_HELP,
        placeholder=text.CLASSES_PLACEHOLDER,
        lines=2,
        max_lines=6,
        elem_id="classes",
    )


def ask_buttons() -> tuple[gr.Button, gr.Button]:
    """The button that asks, and the one that stops, which shows only while there is something to stop."""
    with gr.Row(elem_classes="at-buttons"):
        ask = gr.Button(text.ASK, variant="primary", elem_id="ask")
        stop = gr.Button(text.STOP, variant="secondary", visible=False, elem_id="stop")
    return ask, stop


def html_area(value: str = "", *, name: str) -> gr.HTML:
    """A place for our own HTML."""
    return gr.HTML(value, elem_id=name, apply_default_css=False, js_on_load=None)


def example_row(value: str) -> gr.HTML:
    """Buttons in HTML; a click tells which one as `event.example`."""
    return gr.HTML(value, elem_id="examples", apply_default_css=False, js_on_load=_TELL_WHICH_EXAMPLE)
