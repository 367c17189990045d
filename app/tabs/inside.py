"""The panel that looks inside a result: the map of its task vectors, and sliders to scale them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import text, views
from app.events import DEVICE, PRIVATE, QUICK, Updates, Values, html_errors, user_message
from app.handlers.few_shot import SavedResult
from app.handlers.inside import (
    MAPS,
    MAX_STRENGTH,
    RecipeContents,
    Strengths,
    coefficient_map,
    compare_scaled,
    images_to_inspect,
    inspect_recipe,
)
from app.limits import LIMITS
from app.session import CurrentModel
from app.tabs import components
from app.tabs.result_state import ResultState

__all__ = ["InsidePanel"]

AS_LEARNED = 1.0
ANY = ""  # of layers, task vectors or kinds: none is chosen
BY_LAYER = "layer"
SEPARATOR = "\n"

Choices = list[tuple[str, str]]  # labels with values


@dataclass(frozen=True)
class _MapControls:
    """What the map shows."""

    shows: gr.Radio
    by: gr.Radio
    kind: gr.Dropdown


@dataclass(frozen=True)
class _StrengthControls:
    """Sliders for the first task vectors, and for another one and a layer that are chosen beside them."""

    order: gr.Textbox  # the names of all task vectors, the first ones those of the sliders; never seen
    sliders: tuple[gr.Slider, ...]
    other: gr.Dropdown
    other_strength: gr.Slider
    layer: gr.Dropdown
    layer_strength: gr.Slider

    @property
    def outputs(self) -> list[Any]:
        return [self.order, *self.all]

    @property
    def all(self) -> list[Any]:
        return [*self.sliders, self.other, self.other_strength, self.layer, self.layer_strength]

    def read(self, values: Values) -> Strengths:
        """The factors that differ from as learned."""
        tasks = {
            name: float(values[slider])
            for name, slider in zip(_split(values[self.order]), self.sliders, strict=False)
            if values[slider] != AS_LEARNED
        }
        other, layer = values[self.other], values[self.layer]
        if other not in (None, ANY) and values[self.other_strength] != AS_LEARNED:
            tasks[other] = float(values[self.other_strength])
        layers = {}
        if layer not in (None, ANY) and values[self.layer_strength] != AS_LEARNED:
            layers[int(layer)] = float(values[self.layer_strength])
        return Strengths(tasks, layers)

    def reset(self) -> Updates:
        """All as learned, and nothing chosen."""
        strengths = dict.fromkeys((*self.sliders, self.other_strength, self.layer_strength), AS_LEARNED)
        return {**strengths, self.other: ANY, self.layer: ANY}

    def offer(self, contents: RecipeContents) -> Updates:
        """The same, for the task vectors and layers of another result."""
        updates = self.reset()
        for place, slider in enumerate(self.sliders):
            updates[slider] = gr.update(**_slider_labels(contents, place), value=AS_LEARNED)
        updates[self.order] = _order(contents)
        updates[self.other] = gr.update(choices=_other_choices(contents), value=ANY)
        updates[self.layer] = gr.update(choices=_layer_choices(contents), value=ANY)
        return updates


@dataclass(frozen=True)
class InsidePanel:
    """The components that show a result, and how it is shown."""

    current: CurrentModel
    state: ResultState[SavedResult]
    lead: gr.HTML
    playground: gr.Column
    map_controls: _MapControls
    map: gr.HTML
    effects: gr.HTML
    task_vectors: gr.HTML
    strengths: _StrengthControls
    scaled: gr.HTML

    @classmethod
    def create(cls, current: CurrentModel, state: ResultState[SavedResult], tab: gr.Tab) -> InsidePanel:
        """Lay out the panel and wire it; it is filled when its `tab` is opened."""
        engine, result = current.engine(), state.example
        contents = _inspect(engine, result)
        lead = components.html_area(views.render_note(_lead(result, contents)), name="inside-lead")
        with gr.Column(visible=contents.moves, elem_classes="at-plain") as playground:
            effects = components.html_area(views.render_effects(contents, result), name="effects")
            components.html_area(
                views.render_lead(text.inside.SCALE_HEADING, text.inside.SCALE_HELP, level=3),
                name="turn-lead",
            )
            strengths = _create_strength_controls(contents)
            reset = gr.Button(text.inside.RESET, size="sm", elem_id="turn-back")
            scaled = components.html_area(name="turned")
            with gr.Accordion(text.inside.EXPERT, open=False, elem_id="inside-expert"):
                map_controls = _create_map_controls(contents)
                shown_map = components.html_area(_render_map(engine, result, contents), name="map")
                task_vectors = components.html_area(_render_task_vectors(contents), name="task-vectors")
        panel = cls(
            current,
            state,
            lead,
            playground,
            map_controls,
            shown_map,
            effects,
            task_vectors,
            strengths,
            scaled,
        )
        panel._wire(reset, tab)
        return panel

    @property
    def outputs(self) -> list[Any]:
        """What `show` updates."""
        return [
            self.lead,
            self.playground,
            self.map_controls.kind,
            self.map,
            self.effects,
            self.task_vectors,
            *self.strengths.outputs,
            self.scaled,
        ]

    def show(self, engine: atlas.Atlas, result: SavedResult | None) -> Updates:
        """What this result is made of, and what each part does."""
        contents = _inspect(engine, result)
        lead = views.render_note(_lead(result, contents))
        return self._fill(lead, contents, result, _render_map(engine, result, contents))

    def show_alert(self, alert: str) -> Updates:
        """An alert in place of a result."""
        return self._fill(alert, RecipeContents(), None, views.EMPTY)

    def _fill(
        self, lead: str, contents: RecipeContents, result: SavedResult | None, shown_map: str
    ) -> Updates:
        return {
            self.lead: lead,
            self.playground: gr.update(visible=contents.moves),
            self.map_controls.kind: gr.update(choices=_kind_choices(contents), value=ANY),
            self.map: shown_map,
            self.effects: views.render_effects(contents, result),
            self.task_vectors: _render_task_vectors(contents),
            **self.strengths.offer(contents),
            self.scaled: views.EMPTY,
        }

    def _wire(self, reset: gr.Button, tab: gr.Tab) -> None:
        controls = self.map_controls

        def on_inside(values: Values) -> Updates:
            try:
                return self.show(self.current.engine(), self.state.read(values))
            except Exception as error:  # the border: a visitor gets a sentence, whatever happened
                return self.show_alert(views.render_alert(user_message(error)))

        @html_errors
        def on_map(values: Values) -> str:
            engine, result = self.current.engine(), self.state.read(values)
            if result is None:
                return views.EMPTY
            grid = coefficient_map(
                engine,
                result.recipe,
                shows=values[controls.shows],
                by=values[controls.by],
                kind=values[controls.kind],
                order=_split(values[self.strengths.order]),
            )
            return views.render_map(grid)

        @html_errors
        def on_scale(values: Values) -> str:
            engine, result = self.current.engine(), self.state.read(values)
            if result is None:
                return views.EMPTY
            return _render_scaled(engine, result, self.strengths.read(values))

        tab.select(
            on_inside,
            self.state.components,
            self.outputs,
            show_progress="minimal",
            show_progress_on=self.lead,
            **PRIVATE,
            **DEVICE,
        )
        gr.on(
            [controls.shows.change, controls.by.change, controls.kind.change],
            on_map,
            {*self.state.components, self.strengths.order, controls.shows, controls.by, controls.kind},
            self.map,
            **QUICK,
        )
        gr.on(
            [control.change for control in self.strengths.all],
            on_scale,
            {*self.state.components, *self.strengths.outputs},
            self.scaled,
            trigger_mode="always_last",
            show_progress="minimal",
            **PRIVATE,
            **DEVICE,
        )
        reset.click(self.strengths.reset, None, self.strengths.all, **QUICK)


def _inspect(engine: atlas.Atlas, result: SavedResult | None) -> RecipeContents:
    if result is None:
        return RecipeContents()
    return inspect_recipe(engine, result.recipe, images_to_inspect(result))


def _lead(result: SavedResult | None, contents: RecipeContents) -> str:
    if result is None:
        return text.result.WAITING
    return text.inside.LEAD if contents.moves else text.inside.NO_TASK_VECTORS


def _render_map(engine: atlas.Atlas, result: SavedResult | None, contents: RecipeContents) -> str:
    if not contents.moves or result is None:
        return views.EMPTY
    order = [facts.name for facts in contents.task_vectors]
    return views.render_map(coefficient_map(engine, result.recipe, order=order))


def _render_task_vectors(contents: RecipeContents) -> str:
    by_length = sorted(contents.task_vectors, key=lambda facts: -facts.share)
    return views.render_task_vectors(by_length) if contents.moves else views.EMPTY


def _order(contents: RecipeContents) -> str:
    """The names of the task vectors that move something, as the hidden box holds them."""
    return SEPARATOR.join(facts.name for facts in contents.task_vectors if facts.share > 0)


def _split(order: str | None) -> list[str]:
    return [name for name in (order or "").split(SEPARATOR) if name]


def _render_scaled(engine: atlas.Atlas, result: SavedResult, strengths: Strengths) -> str:
    """The samples as learned and now, while any strength is not as learned."""
    if not strengths.tasks and not strengths.layers:
        return views.EMPTY
    comparison = compare_scaled(engine, result, strengths)
    if comparison is None:
        return views.render_note(text.inside.NO_SAMPLES)
    names = (text.result.AS_LEARNED, text.result.CHANGED)
    return views.render_pairs(comparison, result.samples, names=names, top=2)


# ---- controls


def _create_map_controls(contents: RecipeContents) -> _MapControls:
    with gr.Row():
        shows = gr.Radio(
            _labelled(text.inside.MAP_NAMES),
            value=MAPS[0],
            label=text.inside.MAP_LABEL,
            info=text.inside.MAP_HELP,
            elem_id="map-shows",
        )
        by = gr.Radio(
            _labelled(text.inside.BY_NAMES),
            value=BY_LAYER,
            label=text.inside.BY_LABEL,
            info=text.inside.BY_HELP,
            elem_id="map-by",
        )
        kind = gr.Dropdown(
            _kind_choices(contents),
            value=ANY,
            label=text.inside.KIND_LABEL,
            info=text.inside.KIND_HELP,
            elem_id="map-kind",
        )
    return _MapControls(shows, by, kind)


def _create_strength_controls(contents: RecipeContents) -> _StrengthControls:
    order = gr.Textbox(_order(contents), visible="hidden", elem_id="turn-order")
    with gr.Row(elem_classes="at-sliders"):
        sliders = tuple(
            _slider(name=f"turn-{place + 1}", **_slider_labels(contents, place))
            for place in range(LIMITS.sliders)
        )
    with gr.Row(elem_classes="at-sliders"):
        other = gr.Dropdown(
            _other_choices(contents),
            value=ANY,
            label=text.inside.OTHER_LABEL,
            info=text.inside.OTHER_HELP,
            elem_id="turn-other",
        )
        beside = text.inside.STRENGTH_HELP
        other_strength = _slider(name="turn-other-strength", label=text.inside.OTHER_SLIDER, info=beside)
        layer = gr.Dropdown(
            _layer_choices(contents),
            value=ANY,
            label=text.inside.LAYER_LABEL,
            info=text.inside.LAYER_HELP,
            elem_id="turn-layer",
        )
        layer_strength = _slider(name="turn-strength", label=text.inside.LAYER_SLIDER, info=beside)
    return _StrengthControls(order, sliders, other, other_strength, layer, layer_strength)


def _slider(*, name: str, label: str, info: str, visible: bool = True) -> gr.Slider:
    return gr.Slider(
        0,
        MAX_STRENGTH,
        AS_LEARNED,
        step=0.1,
        label=label,
        info=info,
        visible=visible,
        min_width=150,
        elem_id=name,
    )


def _slider_labels(contents: RecipeContents, place: int) -> dict[str, Any]:
    """A slider's label and help, and whether there is a task vector for it that moves something."""
    moving = [facts for facts in contents.task_vectors if facts.share > 0]
    if place >= len(moving):
        return {"label": text.inside.TASK_VECTOR, "info": text.inside.TASK_VECTOR, "visible": False}
    facts = moving[place]
    about = text.task_vectors.DATASETS.get(facts.dataset, facts.dataset)
    return {"label": facts.name, "info": about, "visible": True}


def _kind_choices(contents: RecipeContents) -> Choices:
    return [(text.inside.ANY_KIND, ANY), *((kind, kind) for kind in contents.kinds)]


def _other_choices(contents: RecipeContents) -> Choices:
    """The task vectors that have no slider of their own, and do move something."""
    others = [facts.name for facts in contents.task_vectors[LIMITS.sliders :] if facts.share > 0]
    return [(text.inside.NO_TASK_VECTOR, ANY), *((name, name) for name in others)]


def _layer_choices(contents: RecipeContents) -> Choices:
    layers = ((text.inside.layer(layer), str(layer)) for layer in contents.layers)
    return [(text.inside.NO_LAYER, ANY), *layers]


def _labelled(names: dict[str, str]) -> Choices:
    return [(label, value) for value, label in names.items()]
