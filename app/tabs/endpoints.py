"""What programs call: `/adapt` and `/compare`, with names and types that are kept stable. Knows no torch.

`/predict` stands beside them in `tabs.ask`. The components here are never seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import text
from app.border import DEVICE, told
from app.handlers.choices import METHODS, Choices
from app.handlers.lesson import Lesson, Sample, Shown, unpack
from app.handlers.takeaway import load_recipe, save_recipe
from app.handlers.teach import teach
from app.state import Kept

__all__ = ["endpoints"]


def endpoints(engine: atlas.Atlas) -> None:
    """Make both inside the current Blocks."""

    def adapt(
        archive: str, samples: Sequence[str] | None, method: str, steps: float, seed: float
    ) -> Iterator[tuple[dict[str, Any], str]]:
        with TemporaryDirectory() as folder:
            try:
                rows = unpack(archive, Path(folder))
                lesson = Lesson(rows, tuple(Sample(path) for path in samples or []))
                *_, last = teach(engine, lesson, Choices(method, int(steps), seed=int(seed)))
                kept = last.kept
                assert kept is not None
                recipe = save_recipe(kept.recipe, Path(folder))
            except Exception as error:
                raise gr.Error(told(error), print_exception=False) from None
            yield {**_facts(kept), "left_out": list(last.left_out)}, recipe

    def compare(samples: Sequence[str] | None, recipe: str) -> dict[str, Any]:
        try:
            kept, left_out = load_recipe(engine, recipe, [Sample(path) for path in samples or []])
        except Exception as error:
            raise gr.Error(told(error), print_exception=False) from None
        return {"rows": _rows(kept.comparison, kept.samples), "left_out": list(left_out)}

    usual = Choices()
    with gr.Row(visible=False):
        archive = gr.File(label=text.API_ZIP, type="filepath")
        samples = gr.File(label=text.API_SAMPLES, file_count="multiple", type="filepath")
        method = gr.Dropdown(list(METHODS), value=usual.method, label=text.METHOD_LABEL)
        steps = gr.Number(usual.steps, precision=0, label=text.STEPS_LABEL)
        seed = gr.Number(usual.seed, precision=0, label=text.SEED_LABEL)
        result, rows = gr.JSON(label=text.API_RESULT), gr.JSON(label=text.API_ROWS)
        given, made = gr.File(label=text.API_RECIPE, type="filepath"), gr.File(label=text.API_RECIPE)
        do_adapt, do_compare = gr.Button(), gr.Button()
    do_adapt.click(
        adapt,
        [archive, samples, method, steps, seed],
        [result, made],
        api_name="adapt",
        api_description=text.API_ADAPT,
        **DEVICE,
    )
    do_compare.click(
        compare, [samples, given], rows, api_name="compare", api_description=text.API_COMPARE, **DEVICE
    )


def _facts(kept: Kept) -> dict[str, Any]:
    return {
        "verdict": kept.sentence,
        "helped": kept.helped,
        "kept": kept.recipe.method,
        "estimates": [
            {"method": e.method, "accuracy": e.accuracy, "low": e.low, "high": e.high, "images": e.images}
            for e in kept.estimates
        ],
        "seconds": kept.seconds,
        "rows": _rows(kept.comparison, kept.samples),
    }


def _rows(comparison: atlas.Comparison | None, samples: Sequence[Shown]) -> list[dict[str, Any]]:
    if comparison is None:
        return []
    before, after = comparison.zero_shot.top(1), comparison.adapted.top(1)
    return [
        {
            "image": sample.picture.name,
            "truth": sample.truth,
            "zero_shot": old[0]._asdict(),
            "adapted": new[0]._asdict(),
        }
        for sample, old, new in zip(samples, before, after, strict=True)
    ]
