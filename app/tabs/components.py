"""The pieces that tabs are made of, each with its label and help. They know nothing of models or events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from app import text

__all__ = [
    "answers_area",
    "class_gallery",
    "class_names_box",
    "copy_to_cache",
    "example_row",
    "folder_or_zip",
    "hide_stop",
    "html_area",
    "image_mover",
    "leave_button",
    "live_camera",
    "run_buttons",
    "samples_gallery",
    "seed_box",
    "start_button",
    "stop_button",
    "templates_box",
    "unlabelled_gallery",
    "words_box",
    "zip_gallery",
]

Items = Sequence[str | tuple[str, str | None]]

# One listener on the frame: its inside is replaced as the value changes.
_REPORT_CLICKED_EXAMPLE = """
element.addEventListener("click", (event) => {
    const button = event.target.closest("[data-example]");
    if (button) trigger("click", { example: Number(button.dataset.example) });
});
"""


_REPORT_CORRECTION = """
element.addEventListener("change", (event) => {
    const choice = event.target.closest("select[data-image]");
    if (choice && choice.value) trigger("submit", { image: choice.dataset.image, label: choice.value });
});
"""


# The page's script takes the frames; it finds this function when there is somewhere to send them.
_SEND_FRAMES = """
window.atlasSendFrame = ({ frame, number }) => trigger("input", { frame, number });
"""


_MOVE_IMAGES = """
window.atlasMoveImage = (move) => trigger("submit", move);
"""


# ---- images


def class_gallery(paths: Sequence[str], place: int) -> gr.Gallery:
    """Images of one class."""
    label = f"{text.teach.ROW_IMAGES}: {text.teach.class_label(place)}"
    return _drop_zone(label, name=f"pictures-{place}", columns=4, height=214, items=paths)


def samples_gallery(items: Items) -> gr.Gallery:
    """Images to try a result on; a caption is an image's class."""
    return _drop_zone(text.trying.IMAGES_LABEL, name="samples", columns=4, height=260, items=items)


def unlabelled_gallery() -> gr.Gallery:
    """Images without labels; a caption may be an image's class, to count what is right afterwards."""
    return _drop_zone(text.unlabelled.IMAGES_LABEL, name="unlabelled", columns=5, height=300)


def zip_gallery(items: Items, *, label: str, name: str) -> gr.Gallery:
    """Images from a folder or a zip, each with its class; none can be dropped here, for want of a class."""
    return gr.Gallery(
        list(items) or None,
        label=label,
        type="filepath",
        columns=5,
        fit_columns=False,
        height=180,
        object_fit="contain",
        interactive=False,
        buttons=[],
        elem_id=name,
        elem_classes="at-drop",
    )


def folder_or_zip(*, name: str) -> gr.UploadButton:
    """Two buttons that take images by class; a folder is packed on the page and arrives as a zip."""
    folder = gr.Button(text.page.FILL_FROM_FOLDER, size="sm", elem_id=f"{name}-folder")
    archive = gr.UploadButton(
        text.page.FILL_FROM_ZIP, file_types=[".zip"], size="sm", elem_id=f"{name}-zip", type="filepath"
    )
    folder.click(None, js=f"() => window.atlasFolder('{name}')", api_visibility="private")
    return archive


def copy_to_cache(component: gr.components.Component, path: str) -> str:
    """The path of Gradio's own copy of a file, which it deletes in time; the original may go."""
    return str(component.move_resource_to_block_cache(path))


def _drop_zone(label: str, *, name: str, columns: int, height: int, items: Items = ()) -> gr.Gallery:
    """Several images: dropped, chosen, pasted or taken; handed on as paths, never decoded by Gradio."""
    return gr.Gallery(
        list(items) or None,
        label=label,
        type="filepath",
        file_types=["image", ".heic", ".heif"],  # not every machine knows the last two for images
        sources=["upload", "clipboard"],  # the camera is ours (`camera.js`)
        columns=columns,
        fit_columns=False,
        height=height,
        object_fit="contain",
        interactive=True,
        buttons=[],
        elem_id=name,
        elem_classes="at-drop",
    )


# ---- words and numbers


def words_box(names: Sequence[str]) -> gr.Textbox:
    """The words that an image to try is matched to: those that were taught, or others."""
    return gr.Textbox(
        ", ".join(names),
        label=text.trying.WORDS_LABEL,
        info=text.trying.WORDS_HELP,
        placeholder=text.trying.WORDS_PLACEHOLDER,
        lines=1,
        max_lines=6,
        elem_id="classes",
    )


def class_names_box(*, name: str) -> gr.Textbox:
    """Class names, one or more lines of them."""
    return gr.Textbox(
        label=text.ask.CLASSES_LABEL,
        info=text.ask.CLASSES_HELP,
        placeholder=text.ask.CLASSES_PLACEHOLDER,
        lines=2,
        max_lines=6,
        elem_id=name,
    )


def seed_box() -> gr.Number:
    """The seed of a run."""
    return gr.Number(0, label=text.page.SEED_LABEL, info=text.page.SEED_HELP, precision=0, minimum=0)


def templates_box(*, name: str) -> gr.Dropdown:
    """The sentences that class names are put into: a set by its name, or one that is typed."""
    return gr.Dropdown(
        list(text.page.TEMPLATE_CHOICES),
        value=text.page.OWN_TEMPLATES,
        label=text.page.TEMPLATES_LABEL,
        info=text.page.TEMPLATES_HELP,
        allow_custom_value=True,
        elem_id=name,
    )


# ---- buttons


def run_buttons(label: str, *, start: str, stop: str) -> tuple[gr.Button, gr.Button]:
    """A button that starts, and one that stops, which shows only while there is something to stop."""
    with gr.Row(elem_classes="at-buttons"):
        return start_button(label, name=start), stop_button(name=stop)


def start_button(label: str, *, name: str) -> gr.Button:
    """The button that a tab is for."""
    return gr.Button(label, variant="primary", elem_id=name, elem_classes="at-start")


def stop_button(*, name: str) -> gr.Button:
    """The button that ends a run; it stands where the run is seen."""
    return gr.Button(text.page.STOP, variant="secondary", size="sm", visible=False, elem_id=name)


def hide_stop() -> Any:  # noqa: ANN401 - Gradio's update
    """The button that ends a run, out of sight, and ready for the next one."""
    return gr.update(visible=False, value=text.page.STOP, interactive=True)


def leave_button(*, name: str) -> gr.Button:
    """The button that gives up a place in the queue; the page shows it while a run waits for its turn."""
    return gr.Button(text.page.LEAVE, variant="secondary", size="sm", elem_id=name, elem_classes="at-leave")


# ---- HTML of our own


def html_area(value: str = "", *, name: str, render: bool = True) -> gr.HTML:
    """A place for our own HTML; without `render` it is laid out later."""
    return gr.HTML(value, elem_id=name, apply_default_css=False, js_on_load=None, render=render)


def answers_area(value: str = "", *, name: str) -> gr.HTML:
    """Answers in HTML; a correction tells the image and its class as `event.image` and `event.label`."""
    return gr.HTML(value, elem_id=name, apply_default_css=False, js_on_load=_REPORT_CORRECTION)


def image_mover() -> gr.HTML:
    """Nothing to see; an image dragged to another class comes as `event.source`, `.index` and `.into`."""
    return gr.HTML("", elem_id="mover", apply_default_css=False, js_on_load=_MOVE_IMAGES)


def live_camera(value: str, *, name: str) -> gr.HTML:
    """A camera in HTML; a frame comes as `event.frame`, with its number as `event.number`."""
    return gr.HTML(value, elem_id=name, apply_default_css=False, js_on_load=_SEND_FRAMES)


def example_row(value: str, *, name: str) -> gr.HTML:
    """Buttons in HTML; a click tells which one as `event.example`."""
    return gr.HTML(value, elem_id=name, apply_default_css=False, js_on_load=_REPORT_CLICKED_EXAMPLE)
