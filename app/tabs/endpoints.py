"""What programs call: `/adapt`, `/adapt_unlabelled`, `/stop` and `/compare`. Knows nothing of torch.

Names and types are kept stable. `/predict` stands in `tabs.ask`, `/forget` in `tabs.forget_endpoint`. The
components here are never seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import api_text, roll_text, text
from app.engines import Answering
from app.events import DEVICE, user_message
from app.handlers.ask import split_classes
from app.handlers.choices import METHODS, OBJECTIVES, Choices, RollChoices
from app.handlers.lesson import FewShotRequest, LabelledImage, SampleFile, unpack
from app.handlers.takeaway import load_recipe, save_recipe
from app.handlers.teach import RunProgress, teach
from app.handlers.unlabelled import Roll, adapt_roll
from app.state import Runs, SavedResult

__all__ = ["endpoints", "progress"]


def endpoints(answering: Answering, runs: Runs) -> None:
    """Make them inside the current Blocks."""

    def adapt(  # noqa: PLR0917 - an endpoint, which Gradio calls
        request: gr.Request,
        archive: str,
        samples: Sequence[str] | None,
        method: str,
        steps: float,
        seed: float,
        lr: float | None,
    ) -> Iterator[tuple[dict[str, Any], str | None]]:
        with TemporaryDirectory() as folder, runs.sign(request.session_hash) as sign:
            try:
                engine = answering()
                rows = unpack(archive, Path(folder))
                lesson = FewShotRequest(rows, tuple(SampleFile(path) for path in samples or []))
                chosen = Choices(method, int(steps), Choices.lr if lr is None else float(lr), int(seed))
                states = teach(engine, lesson, chosen, sign=sign)
                yield from _told(states, Path(folder))
            except Exception as error:
                raise gr.Error(user_message(error), print_exception=False) from None

    def adapt_unlabelled(
        request: gr.Request, photos: Sequence[str] | None, classes: str | None, objective: str, seed: float
    ) -> Iterator[tuple[dict[str, Any], str | None]]:
        with TemporaryDirectory() as folder, runs.sign(request.session_hash) as sign:
            try:
                engine = answering()
                roll = Roll(tuple(SampleFile(path) for path in photos or []), split_classes(classes or ""))
                chosen = RollChoices(objective, int(seed))
                states = adapt_roll(engine, roll, chosen, sign=sign)
                yield from _told(states, Path(folder))
            except Exception as error:
                raise gr.Error(user_message(error), print_exception=False) from None

    def stop(request: gr.Request) -> dict[str, bool]:
        return {"stopped": runs.stop(request.session_hash)}

    def compare(samples: Sequence[str] | None, recipe: str) -> dict[str, Any]:
        try:
            kept, left_out = load_recipe(answering(), recipe, [SampleFile(path) for path in samples or []])
        except Exception as error:
            raise gr.Error(user_message(error), print_exception=False) from None
        return {"rows": _rows(kept.comparison, kept.samples), "left_out": list(left_out)}

    usual = Choices()
    with gr.Row(visible=False):
        archive = gr.File(label=api_text.ZIP, type="filepath")
        samples = gr.File(label=api_text.SAMPLES, file_count="multiple", type="filepath")
        method = gr.Dropdown(list(METHODS), value=usual.method, label=text.METHOD_LABEL)
        steps = gr.Number(usual.steps, precision=0, label=text.STEPS_LABEL)
        seed = gr.Number(usual.seed, precision=0, label=text.SEED_LABEL)
        lr = gr.Number(usual.lr, label=text.LR_LABEL)
        result, rows = gr.JSON(label=api_text.RESULT), gr.JSON(label=api_text.ROWS)
        given, made = gr.File(label=api_text.RECIPE, type="filepath"), gr.File(label=api_text.RECIPE)
        ended = gr.JSON(label=api_text.STOPPED)
        photos = gr.File(label=roll_text.API_PHOTOS, file_count="multiple", type="filepath")
        classes = gr.Textbox(label=api_text.CLASSES)
        objective = gr.Dropdown(list(OBJECTIVES), value=OBJECTIVES[0], label=text.METHOD_LABEL)
        do_adapt, do_roll, do_stop, do_compare = gr.Button(), gr.Button(), gr.Button(), gr.Button()
    do_adapt.click(
        adapt,
        [archive, samples, method, steps, seed, lr],
        [result, made],
        api_name="adapt",
        api_description=api_text.ADAPT,
        **DEVICE,
    )
    do_roll.click(
        adapt_unlabelled,
        [photos, classes, objective, seed],
        [result, made],
        api_name="adapt_unlabelled",
        api_description=roll_text.API_ADAPT,
        **DEVICE,
    )
    do_stop.click(stop, None, ended, api_name="stop", api_description=api_text.STOP, queue=False)
    do_compare.click(
        compare, [samples, given], rows, api_name="compare", api_description=api_text.COMPARE, **DEVICE
    )


def _told(states: Iterator[RunProgress], folder: Path) -> Iterator[tuple[dict[str, Any], str | None]]:
    """How far a run is, then what came of it, with its recipe as a file in `folder`."""
    for taught in states:
        if taught.kept is None:
            yield progress(taught), None
        else:
            facts = {**_facts(taught.kept), "left_out": list(taught.left_out)}
            yield facts, save_recipe(taught.kept.recipe, folder)


def progress(taught: RunProgress) -> dict[str, Any]:
    """How far a run is."""
    return {"phase": taught.phase, "share": taught.share, "seconds_left": taught.seconds_left}


def _facts(kept: SavedResult) -> dict[str, Any]:
    return {
        "verdict": kept.sentence,
        "helped": kept.helped,
        "kept": kept.recipe.method,
        "estimates": [
            {"method": e.method, "accuracy": e.accuracy, "low": e.low, "high": e.high, "images": e.images}
            for e in kept.estimates
        ],
        "seconds": kept.seconds,
        "stopped": kept.stopped,
        "rows": _rows(kept.comparison, kept.samples),
    }


def _rows(comparison: atlas.Comparison | None, samples: Sequence[LabelledImage]) -> list[dict[str, Any]]:
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
