"""The panel of things to take away: recipe, weights, lines of code, a link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import text, views
from app.events import DEVICE, EXPORT, PRIVATE, Updates, Values, user_message
from app.handlers.few_shot import SavedResult
from app.handlers.settings import FewShotSettings, UnlabelledSettings, to_query
from app.handlers.takeaway import (
    export_recipe,
    origin_of,
    python_code,
    save_recipe,
    save_weights,
    shell_commands,
)
from app.session import CurrentModel
from app.tabs import components
from app.tabs.result_state import ResultState

__all__ = ["TakePanel"]


@dataclass(frozen=True)
class _CodeContext:
    """What the lines to copy depend on besides the result."""

    bundled: str | None  # the backbone whose bank ships, if this page opens with it
    page_model: str  # the name of the model that the page opens with: links name any other
    defaults: FewShotSettings | UnlabelledSettings  # for the link of a recipe that was brought along

    def render(self, result: SavedResult | None, engine: atlas.Atlas, model: str) -> str:
        """Python, shell commands and a link for a result of this model."""
        if result is None:
            return views.render_note(text.takeaway.NOTHING_TO_TAKE)
        origin = origin_of(engine, bundled=self.bundled)
        other_model = "" if model == self.page_model else model
        query = to_query(result.recipe.classes, result.settings or self.defaults, model=other_model)
        return (
            views.render_code(text.takeaway.CODE_HEADING, python_code(result, origin=origin))
            + views.render_code(text.takeaway.SHELL_HEADING, shell_commands(result, origin=origin))
            + views.render_link(query)
        )


@dataclass(frozen=True)
class _Exports:
    """Buttons by format, and the one that downloads what was made."""

    buttons: Mapping[str, gr.Button]
    download: gr.DownloadButton


@dataclass(frozen=True)
class TakePanel:
    """The components that show a result, and how it is shown."""

    current: CurrentModel
    state: ResultState[SavedResult]
    recipe: gr.DownloadButton
    bring: gr.UploadButton
    make_weights: gr.Button
    weights: gr.DownloadButton
    exports: _Exports
    alert: gr.HTML
    code: gr.HTML
    context: _CodeContext

    @classmethod
    def create(
        cls,
        current: CurrentModel,
        state: ResultState[SavedResult],
        *,
        own_bank: bool,
        defaults: FewShotSettings | UnlabelledSettings,
        file: Path | None = None,
    ) -> TakePanel:
        """Lay out the panel and wire what needs nothing but a result; `file` is the example's recipe.

        `own_bank`: whether the page's model has the bank that ships with it.
        """
        engine, model, result = current.engine(), current.name(), state.example
        with gr.Row():
            with gr.Column(min_width=280):
                components.html_area(
                    views.render_lead(text.takeaway.RECIPE_HEADING, text.takeaway.RECIPE_HELP, level=3),
                    name="recipe-lead",
                )
                with gr.Row(elem_classes="at-buttons"):
                    recipe = gr.DownloadButton(
                        text.takeaway.RECIPE_DOWNLOAD,
                        value=str(file) if result and file and file.is_file() else None,
                        size="sm",
                        visible=result is not None,
                        elem_id="recipe",
                    )
                    bring = gr.UploadButton(
                        text.takeaway.RECIPE_UPLOAD,
                        file_types=[".safetensors"],
                        size="sm",
                        elem_id="bring",
                        type="filepath",
                    )
            with gr.Column(min_width=280):
                components.html_area(
                    views.render_lead(text.takeaway.WEIGHTS_HEADING, text.takeaway.WEIGHTS_HELP, level=3),
                    name="weights-lead",
                )
                with gr.Row(elem_classes="at-buttons"):
                    make_weights = gr.Button(text.takeaway.WEIGHTS_MAKE, size="sm", elem_id="make-weights")
                    weights = gr.DownloadButton(
                        text.takeaway.WEIGHTS_DOWNLOAD, size="sm", visible=False, elem_id="weights"
                    )
                alert = components.html_area(name="weights-alert")
        exports = _create_exports()
        context = _CodeContext(engine.backbone.name if own_bank else None, model, defaults)
        code = components.html_area(context.render(result, engine, model), name="lines")
        panel = cls(current, state, recipe, bring, make_weights, weights, exports, alert, code, context)
        panel._wire()
        return panel

    @property
    def outputs(self) -> list[Any]:
        """What `show` updates."""
        return [self.recipe, self.weights, self.exports.download, self.code, self.alert]

    def show(self, engine: atlas.Atlas, model: str, result: SavedResult | None) -> Updates:
        """This result, made with this model, to take away."""
        if result is None:
            return self.show_alert(views.EMPTY)
        with TemporaryDirectory() as folder:
            path = components.copy_to_cache(self.recipe, save_recipe(result.recipe, Path(folder)))
        return {
            self.recipe: gr.update(value=path, visible=True),
            self.weights: gr.update(visible=False),
            self.exports.download: gr.update(visible=False),
            self.code: self.context.render(result, engine, model),
            self.alert: views.EMPTY,
        }

    def show_alert(self, alert: str) -> Updates:
        """An alert, or nothing, in place of a result."""
        return {
            self.recipe: gr.update(visible=False),
            self.weights: gr.update(visible=False),
            self.exports.download: gr.update(visible=False),
            self.code: views.render_note(text.takeaway.NOTHING_TO_TAKE),
            self.alert: alert,
        }

    def _wire(self) -> None:
        def on_make_weights(values: Values) -> Updates:
            try:
                result = self.state.read(values)
                if result is None:
                    raise atlas.AtlasError(text.takeaway.NOTHING_TO_TAKE)
                with TemporaryDirectory() as folder:
                    path = save_weights(self.current.engine(), result.recipe, Path(folder))
                    path = components.copy_to_cache(self.weights, path)
            except Exception as error:
                alert = views.render_alert(user_message(error))
                return {self.alert: alert, self.weights: gr.update(visible=False)}
            return {self.alert: views.EMPTY, self.weights: gr.update(value=path, visible=True)}

        for format, button in self.exports.buttons.items():
            button.click(
                self._exporter(format),
                self.state.components,
                [self.alert, self.exports.download],
                show_progress="minimal",
                show_progress_on=self.alert,
                **PRIVATE,
                **EXPORT,
            )
        self.make_weights.click(
            on_make_weights, self.state.components, [self.alert, self.weights], **PRIVATE, **DEVICE
        )

    def _exporter(self, format: str) -> Callable[[Values], Updates]:
        """The event that makes a file of this format."""

        def on_export(values: Values) -> Updates:
            try:
                result = self.state.read(values)
                if result is None:
                    raise atlas.AtlasError(text.takeaway.NOTHING_TO_TAKE)
                with TemporaryDirectory() as folder:
                    path = export_recipe(self.current.engine(), result.recipe, Path(folder), format=format)
                    path = components.copy_to_cache(self.exports.download, path)
            except Exception as error:
                alert = views.render_alert(user_message(error))
                return {self.alert: alert, self.exports.download: gr.update(visible=False)}
            label = text.takeaway.EXPORT_DOWNLOAD.format(name=Path(path).name)
            return {
                self.alert: views.EMPTY,
                self.exports.download: gr.update(label=label, value=path, visible=True),
            }

        return on_export


def _create_exports() -> _Exports:
    """A button for each format that the page offers and this machine can make."""
    formats = [name for name in text.takeaway.EXPORT_NAMES if name in atlas.available_formats()]
    if formats:
        lead = views.render_lead(text.takeaway.EXPORT_HEADING, text.takeaway.EXPORT_HELP, level=3)
        components.html_area(lead, name="export-lead")
    with gr.Row(elem_classes="at-buttons", visible=bool(formats)):
        buttons = {
            name: gr.Button(text.takeaway.EXPORT_NAMES[name], size="sm", elem_id=f"export-{name}")
            for name in formats
        }
        download = gr.DownloadButton(visible=False, size="sm", elem_id="exported")
    return _Exports(buttons, download)
