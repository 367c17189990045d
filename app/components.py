"""The pieces that tabs are made of, each with its label and help. Know nothing of models or events."""

from __future__ import annotations

from collections.abc import Sequence

import gradio as gr

from app import roll_text, text

__all__ = [
    "ask_buttons",
    "class_box",
    "class_pictures",
    "drop_zone",
    "example_row",
    "folder_or_zip",
    "given_pictures",
    "handed_over",
    "html_area",
    "roll_zone",
    "run_buttons",
    "sample_zone",
    "start_button",
    "stop_button",
]

# One listener on the frame: its inside is replaced as the value changes.
_TELL_WHICH_EXAMPLE = """
element.addEventListener("click", (event) => {
    const button = event.target.closest("[data-example]");
    if (button) trigger("click", { example: Number(button.dataset.example) });
});
"""


def drop_zone() -> gr.Gallery:
    """Pictures to ask about."""
    return _pictures(text.IMAGES_LABEL, name="images", columns=3, height=210)


def class_pictures(paths: list[str], place: int) -> gr.Gallery:
    """Pictures of one class."""
    label = f"{text.ROW_PICTURES}: {text.class_label(place)}"
    return _pictures(label, name=f"pictures-{place}", columns=4, height=116, paths=paths)


def sample_zone(samples: list[tuple[str, str | None]]) -> gr.Gallery:
    """Pictures to try a result on; a caption tells a picture's class."""
    return _pictures(text.SAMPLES_LABEL, name="samples", columns=5, height=216, paths=samples)


def roll_zone() -> gr.Gallery:
    """Photos without labels; a caption may tell a photo's class, to count what is right afterwards."""
    return _pictures(roll_text.PHOTOS_LABEL, name="roll", columns=5, height=300)


def given_pictures(pictures: Sequence[tuple[str, str | None]], *, label: str, name: str) -> gr.Gallery:
    """Pictures from a folder or a zip, each with its class; nothing can be dropped here, for want of one."""
    return gr.Gallery(
        list(pictures) or None,
        label=label,
        type="filepath",
        columns=5,
        fit_columns=False,
        height=180,
        object_fit="cover",
        interactive=False,
        buttons=[],
        elem_id=name,
        elem_classes="at-drop",
    )


def folder_or_zip(folder_label: str, zip_label: str, *, name: str) -> gr.UploadButton:
    """Two buttons that take pictures by class; a folder is packed on the page and arrives as a zip."""
    folder = gr.Button(folder_label, size="sm", elem_id=f"{name}-folder")
    archive = gr.UploadButton(
        zip_label, file_types=[".zip"], size="sm", elem_id=f"{name}-zip", type="filepath"
    )
    folder.click(None, js=f"() => window.atlasFolder('{name}')", api_visibility="private")
    return archive


def _pictures(
    label: str, *, name: str, columns: int, height: int, paths: Sequence[str | tuple[str, str | None]] = ()
) -> gr.Gallery:
    """Several pictures: dropped, chosen, pasted or taken; handed on as paths, never decoded by Gradio."""
    return gr.Gallery(
        list(paths) or None,
        label=label,
        type="filepath",
        file_types=["image", ".heic", ".heif"],  # not every machine knows the last two for pictures
        sources=["upload", "webcam", "clipboard"],
        columns=columns,
        fit_columns=False,
        height=height,
        object_fit="cover",
        interactive=True,
        buttons=[],
        elem_id=name,
        elem_classes="at-drop",
    )


def class_box(*, name: str = "classes") -> gr.Textbox:
    """Class names, one or more lines of them."""
    return gr.Textbox(
        label=text.CLASSES_LABEL,
        info=text.CLASSES_HELP,
        placeholder=text.CLASSES_PLACEHOLDER,
        lines=2,
        max_lines=6,
        elem_id=name,
    )


def ask_buttons() -> tuple[gr.Button, gr.Button]:
    """The button that asks, and the one that stops it."""
    return run_buttons(text.ASK, start="ask", stop="stop")


def run_buttons(label: str, *, start: str, stop: str) -> tuple[gr.Button, gr.Button]:
    """A button that starts, and one that stops, which shows only while there is something to stop."""
    with gr.Row(elem_classes="at-buttons"):
        return start_button(label, name=start), stop_button(name=stop)


def start_button(label: str, *, name: str) -> gr.Button:
    """The button that a tab is for."""
    return gr.Button(label, variant="primary", elem_id=name, elem_classes="at-start")


def stop_button(*, name: str) -> gr.Button:
    """The button that ends a run; it stands where the run is seen."""
    return gr.Button(text.STOP, variant="secondary", size="sm", visible=False, elem_id=name)


def leave_button(*, name: str) -> gr.Button:
    """The button that gives up a place in the queue; the page shows it while a run waits for its turn."""
    return gr.Button(text.LEAVE, variant="secondary", size="sm", elem_id=name, elem_classes="at-leave")


def html_area(value: str = "", *, name: str, render: bool = True) -> gr.HTML:
    """A place for our own HTML; without `render` it is laid out later."""
    return gr.HTML(value, elem_id=name, apply_default_css=False, js_on_load=None, render=render)


def example_row(value: str, *, name: str = "examples") -> gr.HTML:
    """Buttons in HTML; a click tells which one as `event.example`."""
    return gr.HTML(value, elem_id=name, apply_default_css=False, js_on_load=_TELL_WHICH_EXAMPLE)


def handed_over(component: gr.blocks.Block, path: str) -> str:
    """The path of Gradio's own copy of a file, which it sweeps away in time; ours may go."""
    return str(component.move_resource_to_block_cache(path))
