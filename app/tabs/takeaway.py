"""The panel of things to take away: recipe, weights, lines of code, a link. Knows nothing of torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import alerts, components, inside_cards, text
from app.engines import Answering
from app.events import DEVICE, PRIVATE, user_message
from app.handlers.choices import Choices, RollChoices, to_query
from app.handlers.takeaway import command_lines, origin_of, python_lines, save_recipe, save_weights
from app.markup import heading, note
from app.model import chosen_as
from app.state import SavedResult
from app.tabs.holding import ResultState

__all__ = ["TakePanel", "take_panel"]

BROUGHT: dict[str, Choices | RollChoices] = {"": Choices(), "roll-": RollChoices()}
"""The settings that the link of a recipe brought along is for, by the panel's prefix: its own tab's."""


@dataclass(frozen=True)
class TakePanel:
    """What is shown anew for every result: `show` gives the values of `outputs`; `refuse`, with an alert."""

    outputs: list[Any]
    show: Callable[[atlas.Atlas, SavedResult | None], list[Any]]
    refuse: Callable[[str], list[Any]]
    bring: gr.UploadButton


def take_panel(
    answering: Answering,
    held: ResultState[SavedResult],
    *,
    bundled: bool,
    file: Path | None = None,
    prefix: str = "",
) -> TakePanel:
    """Lay out the panel and wire what needs nothing but a result; `file` is the opening's recipe.

    `prefix` begins the names of its parts, for a second panel on the page.
    """
    engine, opening = answering(), held.opening
    with gr.Row():
        with gr.Column(min_width=280):
            components.html_area(
                heading(text.RECIPE_HEADING, level=3) + note(text.RECIPE_HELP), name=f"{prefix}recipe-lead"
            )
            with gr.Row(elem_classes="at-buttons"):
                recipe = gr.DownloadButton(
                    text.RECIPE_DOWNLOAD,
                    value=str(file) if opening and file and file.is_file() else None,
                    size="sm",
                    visible=opening is not None,
                    elem_id=f"{prefix}recipe",
                )
                bring = gr.UploadButton(
                    text.RECIPE_UPLOAD,
                    file_types=[".safetensors"],
                    size="sm",
                    elem_id=f"{prefix}bring",
                    type="filepath",
                )
        with gr.Column(min_width=280):
            components.html_area(
                heading(text.WEIGHTS_HEADING, level=3) + note(text.WEIGHTS_HELP), name=f"{prefix}weights-lead"
            )
            with gr.Row(elem_classes="at-buttons"):
                make = gr.Button(text.WEIGHTS_MAKE, size="sm", elem_id=f"{prefix}make-weights")
                weights = gr.DownloadButton(
                    text.WEIGHTS_DOWNLOAD, size="sm", visible=False, elem_id=f"{prefix}weights"
                )
            alert = components.html_area(name=f"{prefix}weights-alert")
    usual = engine.backbone.name  # of the page, when it is opened: lines and links tell of any other
    own, brought = usual if bundled else None, BROUGHT[prefix]

    def lines_of(engine: atlas.Atlas, result: SavedResult | None) -> str:
        return _lines(engine, result, own=own, usual=usual, brought=brought)

    lines = components.html_area(lines_of(engine, opening), name=f"{prefix}lines")
    make.click(_preparing(answering, held, weights), held.parts, [alert, weights], **PRIVATE, **DEVICE)

    def show(engine: atlas.Atlas, result: SavedResult | None) -> list[Any]:
        if result is None:
            return refuse(alerts.NOTHING)
        with TemporaryDirectory() as folder:
            file = _download(components.handed_over(recipe, save_recipe(result.recipe, Path(folder))))
        return [file, gr.update(visible=False), lines_of(engine, result), alerts.NOTHING]

    def refuse(said: str) -> list[Any]:
        hidden = gr.update(visible=False)
        return [hidden, hidden, note(text.NOTHING_TO_TAKE), said]

    return TakePanel([recipe, weights, lines, alert], show, refuse, bring)


def _preparing(
    answering: Answering, held: ResultState[SavedResult], weights: gr.DownloadButton
) -> Callable[[SavedResult | None, str], list[Any]]:
    def on_make(kept: SavedResult | None, shows: str) -> list[Any]:
        try:
            result = held.shown(kept, shows)
            if result is None:
                raise atlas.AtlasError(text.NOTHING_TO_TAKE)
            with TemporaryDirectory() as folder:
                path = save_weights(answering(), result.recipe, Path(folder))
                return [alerts.NOTHING, _download(components.handed_over(weights, path))]
        except Exception as error:
            return [alerts.alert_html(user_message(error)), gr.update(visible=False)]

    return on_make


def _download(path: str) -> Any:  # noqa: ANN401 - Gradio's update
    return gr.update(value=path, visible=True)


def _lines(
    engine: atlas.Atlas,
    kept: SavedResult | None,
    *,
    own: str | None,
    usual: str,
    brought: Choices | RollChoices,
) -> str:
    if kept is None:
        return note(text.NOTHING_TO_TAKE)
    origin, now = origin_of(engine, bundled=own), engine.backbone.name
    model = "" if now == usual else chosen_as(now)
    query = to_query(kept.recipe.classes, kept.choices or brought, model=model)
    return (
        inside_cards.code_html(text.CODE_HEADING, python_lines(kept, origin=origin))
        + inside_cards.code_html(text.SHELL_HEADING, command_lines(kept, origin=origin))
        + inside_cards.share_html(query)
    )
