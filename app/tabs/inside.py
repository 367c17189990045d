"""The panel that looks inside a result: the map of its donors, and sliders to turn them. Knows no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import compare_cards, components, donor_text, inside_cards, inside_text, text
from app.engines import Answering
from app.events import DEVICE, PRIVATE, QUICK, html_errors
from app.handlers.inside import MAPS, MOST, Inside, alike, donors_of, heat, look_inside, turned
from app.limits import LIMITS
from app.markup import heading, note
from app.state import SavedResult
from app.tabs.holding import ResultState

__all__ = ["InsidePanel", "inside_panel"]

AS_LEARNED = 1.0
ANY = ""  # of layers or donors: none is chosen


@dataclass(frozen=True)
class InsidePanel:
    """What is shown anew for every result: `show` gives the values of `outputs`; `refuse`, with an alert."""

    outputs: list[Any]
    show: Callable[[atlas.Atlas, SavedResult | None], list[Any]]
    refuse: Callable[[str], list[Any]]


def inside_panel(answering: Answering, held: ResultState[SavedResult], *, prefix: str = "") -> InsidePanel:
    """Lay out the panel and wire it.

    `prefix` begins the names of its parts, for a second panel on the page.
    """
    engine, opening = answering(), held.opening
    inside = _looked(engine, opening)
    lead = components.html_area(note(_lead(inside)), name=f"{prefix}inside-lead")
    with gr.Column(visible=_moves(inside), elem_classes="at-plain") as playground:
        with gr.Row():
            shows = gr.Radio(
                _named(inside_text.MAP_NAMES),
                value=MAPS[0],
                label=inside_text.MAP_LABEL,
                info=inside_text.MAP_HELP,
                elem_id=f"{prefix}map-shows",
            )
            by = gr.Radio(
                _named(inside_text.BY_NAMES),
                value="layer",
                label=inside_text.BY_LABEL,
                info=inside_text.BY_HELP,
                elem_id=f"{prefix}map-by",
            )
            kind = gr.Dropdown(
                _kinds(inside),
                value="",
                label=inside_text.KIND_LABEL,
                info=inside_text.KIND_HELP,
                elem_id=f"{prefix}map-kind",
            )
        picture = components.html_area(_map(engine, opening), name=f"{prefix}map")
        donors = components.html_area(_donors(inside), name=f"{prefix}donors")
        components.html_area(
            heading(inside_text.TURN_HEADING, level=3) + note(inside_text.TURN_HELP),
            name=f"{prefix}turn-lead",
        )
        with gr.Row(elem_classes="at-sliders"):
            sliders = [_slider(inside, place, prefix) for place in range(LIMITS.turned)]
        with gr.Row(elem_classes="at-sliders"):
            other = gr.Dropdown(
                _others(inside),
                value=ANY,
                label=inside_text.OTHER_LABEL,
                info=inside_text.OTHER_HELP,
                elem_id=f"{prefix}turn-other",
            )
            other_strength = _strength(inside_text.OTHER_SLIDER, name=f"{prefix}turn-other-strength")
            layer = gr.Dropdown(
                _layers(inside),
                value=ANY,
                label=inside_text.LAYER_LABEL,
                info=inside_text.LAYER_HELP,
                elem_id=f"{prefix}turn-layer",
            )
            strength = _strength(inside_text.LAYER_SLIDER, name=f"{prefix}turn-strength")
        back = gr.Button(inside_text.TURN_BACK, size="sm", elem_id=f"{prefix}turn-back")
        now = components.html_area(name=f"{prefix}turned")
    with gr.Accordion(inside_text.BANK_HEADING, open=False, elem_id=f"{prefix}bank") as bank:
        whole = components.html_area(name=f"{prefix}bank-donors")

    @html_errors
    def on_bank() -> str:
        engine = answering()
        return inside_cards.bank_html(donors_of(engine), alike(engine))

    @html_errors
    def on_map(kept: SavedResult | None, seen: str, *how: Any) -> str:  # noqa: ANN401 - what Gradio hands over
        return _map(answering(), held.shown(kept, seen), *how)

    @html_errors
    def on_turn(kept: SavedResult | None, seen: str, *values: Any) -> str:  # noqa: ANN401 - what Gradio hands over
        return _turn(answering(), held.shown(kept, seen), *values)

    bank.expand(on_bank, None, whole, show_progress="minimal", **PRIVATE, **DEVICE)
    gr.on(
        [shows.change, by.change, kind.change],
        on_map,
        [*held.parts, shows, by, kind],
        picture,
        **QUICK,
    )
    knobs = [*sliders, other, other_strength, layer, strength]
    untouched = [*[AS_LEARNED] * len(sliders), ANY, AS_LEARNED, ANY, AS_LEARNED]
    gr.on(
        [one.change for one in knobs],
        on_turn,
        [*held.parts, *knobs],
        now,
        trigger_mode="always_last",
        show_progress="minimal",
        **PRIVATE,
        **DEVICE,
    )
    back.click(lambda: untouched, None, knobs, **QUICK)

    def show(engine: atlas.Atlas, result: SavedResult | None) -> list[Any]:
        seen = _looked(engine, result)
        return _values(note(_lead(seen)), seen, _map(engine, result))

    def refuse(said: str) -> list[Any]:
        return _values(said, None, "")

    return InsidePanel([lead, playground, kind, picture, donors, *knobs, now], show, refuse)


def _values(lead: str, seen: Inside | None, picture: str) -> list[Any]:
    return [
        lead,
        gr.update(visible=_moves(seen)),
        gr.update(choices=_kinds(seen), value=""),
        picture,
        _donors(seen),
        *(gr.update(**_knob(seen, place), value=AS_LEARNED) for place in range(LIMITS.turned)),
        gr.update(choices=_others(seen), value=ANY),
        AS_LEARNED,
        gr.update(choices=_layers(seen), value=ANY),
        AS_LEARNED,
        "",
    ]


def _looked(engine: atlas.Atlas, kept: SavedResult | None) -> Inside | None:
    return None if kept is None else look_inside(engine, kept.recipe)


def _moves(inside: Inside | None) -> bool:
    return inside is not None and inside.moves


def _lead(inside: Inside | None) -> str:
    if inside is None:
        return text.WAITING
    return inside_text.LEAD if inside.moves else inside_text.NO_DONORS


def _map(
    engine: atlas.Atlas, kept: SavedResult | None, shows: str = MAPS[0], by: str = "layer", kind: str = ""
) -> str:
    if kept is None or not look_inside(engine, kept.recipe).moves:
        return ""
    return inside_cards.map_html(heat(engine, kept.recipe, shows=shows, by=by, kind=kind))


def _donors(inside: Inside | None) -> str:
    return inside_cards.donors_html(inside.donors) if inside is not None and inside.moves else ""


def _turn(engine: atlas.Atlas, kept: SavedResult | None, *values: Any) -> str:  # noqa: ANN401 - what Gradio hands over
    """The samples as learned and now, while anything is turned."""
    *factors, other, other_strength, layer, strength = values
    if kept is None:
        return ""
    donors = look_inside(engine, kept.recipe).donors
    tasks = {
        donor.name: float(factor)
        for donor, factor in zip(donors, factors, strict=False)
        if factor != AS_LEARNED
    }
    if other not in (None, ANY) and other_strength != AS_LEARNED:
        tasks[other] = float(other_strength)
    layers = {int(layer): float(strength)} if layer not in (None, ANY) else {}
    if not tasks and all(factor == AS_LEARNED for factor in layers.values()):
        return ""
    comparison = turned(engine, kept, tasks=tasks, layers=layers)
    if comparison is None:
        return note(inside_text.NO_SAMPLES_TO_TURN)
    return compare_cards.pairs_html(comparison, kept.samples, names=(text.ADAPTED, text.NOW), top=2)


def _strength(label: str, *, name: str) -> gr.Slider:
    """A slider for what is chosen beside it."""
    return gr.Slider(
        0,
        MOST,
        AS_LEARNED,
        step=0.1,
        label=label,
        info=inside_text.STRENGTH_HELP,
        min_width=150,
        elem_id=name,
    )


def _slider(inside: Inside | None, place: int, prefix: str) -> gr.Slider:
    return gr.Slider(
        0,
        MOST,
        AS_LEARNED,
        step=0.1,
        elem_id=f"{prefix}turn-{place + 1}",
        min_width=150,
        **_knob(inside, place),
    )


def _knob(inside: Inside | None, place: int) -> dict[str, Any]:
    """A slider's label and help, and whether there is a donor for it."""
    donors = inside.donors if inside is not None else ()
    there = place < len(donors) and donors[place].share > 0
    if not there:
        return {"label": inside_text.DONOR, "info": inside_text.DONOR, "visible": False}
    about = donor_text.PICTURES.get(donors[place].dataset, donors[place].dataset)
    return {"label": donors[place].name, "info": about, "visible": True}


def _named(names: dict[str, str]) -> list[tuple[str, str]]:
    return [(label, value) for value, label in names.items()]


def _kinds(inside: Inside | None) -> list[tuple[str, str]]:
    return [
        (inside_text.ANY_KIND, ""),
        *((kind, kind) for kind in (inside.kinds if inside is not None else ())),
    ]


def _others(inside: Inside | None) -> list[tuple[str, str]]:
    """The donors that have no slider of their own, and do move something."""
    donors = inside.donors[LIMITS.turned :] if inside is not None else ()
    return [(inside_text.NO_DONOR, ANY), *((one.name, one.name) for one in donors if one.share > 0)]


def _layers(inside: Inside | None) -> list[tuple[str, str]]:
    layers = inside.layers if inside is not None else ()
    return [(inside_text.NO_LAYER, ANY), *((inside_text.layer(layer), str(layer)) for layer in layers)]
