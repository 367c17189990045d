"""What programs call to forget: `/forget`, beside the others of `tabs.endpoints`. Knows nothing of torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import api_text, forget_text, text
from app.engines import Answering
from app.events import DEVICE, user_message
from app.handlers.forget import ForgetRequest, ForgetResult, forget
from app.handlers.lesson import unpack
from app.handlers.takeaway import save_recipe
from app.state import Runs
from app.tabs.endpoints import progress

__all__ = ["forget_endpoint"]


def forget_endpoint(answering: Answering, runs: Runs) -> None:
    """Make it inside the current Blocks."""

    def forget_classes(
        request: gr.Request, target: str, control: str, keep: float, seed: float
    ) -> Iterator[tuple[dict[str, Any], str | None]]:
        with TemporaryDirectory() as folder, runs.sign(request.session_hash) as sign:
            try:
                engine, sides = answering(), []
                for name, archive in (("target", target), ("control", control)):
                    (Path(folder) / name).mkdir()
                    sides.append(unpack(archive, Path(folder) / name))
                wish = ForgetRequest.of(sides[0], sides[1], keep=float(keep), seed=int(seed))
                for state in forget(engine, wish, sign=sign):
                    if state.kept is None:
                        yield progress(state.taught), None
                    else:
                        facts = {**_facts(state.kept), "left_out": list(state.taught.left_out)}
                        yield facts, save_recipe(state.kept.recipe, Path(folder))
            except Exception as error:
                raise gr.Error(user_message(error), print_exception=False) from None

    with gr.Row(visible=False):
        target = gr.File(label=forget_text.API_TARGET, type="filepath")
        control = gr.File(label=forget_text.API_CONTROL, type="filepath")
        keep = gr.Number(atlas.NegateConfig().keep, label=forget_text.API_KEEP)
        seed = gr.Number(0, precision=0, label=text.SEED_LABEL)
        result, made = gr.JSON(label=api_text.RESULT), gr.File(label=api_text.RECIPE)
        call = gr.Button()
    call.click(
        forget_classes,
        [target, control, keep, seed],
        [result, made],
        api_name="forget",
        api_description=forget_text.API_FORGET,
        **DEVICE,
    )


def _facts(kept: ForgetResult) -> dict[str, Any]:
    return {
        "verdict": kept.sentence,
        "helped": kept.helped,
        "kept": kept.recipe.method,
        "strengths": [
            {"strength": one.scale, "target": one.target, "control": one.control} for one in kept.curve
        ],
        "seconds": kept.seconds,
        "stopped": kept.stopped,
    }
