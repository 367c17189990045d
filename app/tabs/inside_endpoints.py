"""What programs call to look inside a recipe, `/inside`, `/turn` and `/weights`, and the bank: `/bank`.

Knows nothing of torch.

Names and types are kept stable, as those of `tabs.endpoints`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import api_text
from app.donor_text import donor_data
from app.engines import Answering
from app.events import DEVICE, user_message
from app.handlers.inside import Donor, alike, donors_of, heat, look_inside, strengths, turned
from app.handlers.lesson import SampleFile
from app.handlers.takeaway import load_recipe, save_weights
from atlas_engine.views.heatmap import Grid

__all__ = ["inside_endpoints"]


def inside_endpoints(answering: Answering) -> None:
    """Make them inside the current Blocks."""

    def inside(recipe: str) -> dict[str, Any]:
        try:
            engine = answering()
            kept, _ = load_recipe(engine, recipe, [])
            seen, grid = look_inside(engine, kept.recipe), heat(engine, kept.recipe)
        except Exception as error:
            raise gr.Error(user_message(error), print_exception=False) from None
        donors = [{**_facts(one), "share": one.share} for one in seen.donors]
        return {"donors": donors, "layers": list(seen.layers), "map": _drawn(grid)}

    def bank() -> dict[str, Any]:
        try:
            engine = answering()
            donors, grid = donors_of(engine), alike(engine)
        except Exception as error:
            raise gr.Error(user_message(error), print_exception=False) from None
        return {"donors": [_facts(one) for one in donors], "alike": _drawn(grid)}

    def turn(
        samples: Sequence[str] | None,
        recipe: str,
        tasks: Mapping[str, float] | None,
        layers: Mapping[str, float] | None,
    ) -> dict[str, Any]:
        try:
            engine = answering()
            kept, left_out = load_recipe(engine, recipe, [SampleFile(path) for path in samples or []])
            now = turned(engine, kept, **strengths(engine, kept.recipe, tasks=tasks, layers=layers))
        except Exception as error:
            raise gr.Error(user_message(error), print_exception=False) from None
        return {"rows": _rows(now), "left_out": list(left_out)}

    def weights(recipe: str) -> Iterator[str]:
        with TemporaryDirectory() as folder:
            try:
                engine = answering()
                kept, _ = load_recipe(engine, recipe, [])
                yield save_weights(engine, kept.recipe, Path(folder))
            except Exception as error:
                raise gr.Error(user_message(error), print_exception=False) from None

    with gr.Row(visible=False):
        given = gr.File(label=api_text.RECIPE, type="filepath")
        samples = gr.File(label=api_text.SAMPLES, file_count="multiple", type="filepath")
        tasks, layers = gr.JSON(label=api_text.TASKS), gr.JSON(label=api_text.LAYERS)
        facts, rows = gr.JSON(label=api_text.RESULT), gr.JSON(label=api_text.ROWS)
        file = gr.File(label=api_text.WEIGHTS)
        do_look, do_turn, do_weights, do_tell = gr.Button(), gr.Button(), gr.Button(), gr.Button()
    do_look.click(inside, [given], facts, api_name="inside", api_description=api_text.INSIDE, **DEVICE)
    do_turn.click(
        turn, [samples, given, tasks, layers], rows, api_name="turn", api_description=api_text.TURN, **DEVICE
    )
    do_weights.click(
        weights, [given], file, api_name="weights", api_description=api_text.MAKE_WEIGHTS, **DEVICE
    )
    do_tell.click(bank, None, facts, api_name="bank", api_description=api_text.BANK, **DEVICE)


def _facts(donor: Donor) -> dict[str, Any]:
    return {
        "name": donor.name,
        "trained_on": donor_data(donor.dataset, donor.classes, donor.images),
        "before": donor.before,
        "after": donor.after,
    }


def _drawn(grid: Grid) -> dict[str, Any]:
    return {"rows": grid.rows, "columns": grid.columns, "values": grid.values}


def _rows(now: atlas.Comparison | None) -> list[dict[str, Any]]:
    if now is None:
        return []
    pairs = zip(now.zero_shot.names, now.zero_shot.top(1), now.adapted.top(1), strict=True)
    return [
        {"image": name, "as_learned": before[0]._asdict(), "now": after[0]._asdict()}
        for name, before, after in pairs
    ]
