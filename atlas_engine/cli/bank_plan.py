"""`atlas bank plan`: how much memory a few-shot run needs with a bank, before it is started."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.adapt.methods import FEW_SHOT_METHODS
from atlas_engine.cli.options import bank_option, command, json_flag, method_option, model_option, positive
from atlas_engine.cli.output import emit, emit_json

__all__ = ["plan"]

DEFAULTS = FewShotConfig()


@command(
    "atlas bank plan",
    "atlas bank plan --model ViT-L-14/openai --vectors 20 --storage int4 --memory-limit 24576",
)
@model_option
@bank_option()
@click.option("--vectors", type=positive, metavar="N", help="how many task vectors (default: the bank's)")
@click.option(
    "--storage", metavar="S", help="of the vectors: float32, float16, int8, … (default: the bank's)"
)
@method_option(FEW_SHOT_METHODS)
@click.option("--images", type=positive, default=64, metavar="N", help="images to adapt to (default 64)")
@click.option(
    "--batch", type=positive, default=DEFAULTS.batch, metavar="N",
    help=f"images per step (default {DEFAULTS.batch})",
)  # fmt: skip
@click.option(
    "--folds", type=positive, default=DEFAULTS.folds, metavar="N",
    help=f"folds that are held out (default {DEFAULTS.folds})",
)  # fmt: skip
@click.option("--memory-limit", type=float, metavar="MIB", help="memory to use (default: what is free)")
@json_flag
def plan(
    *,
    model: str,
    bank: Path | None,
    vectors: int | None,
    storage: str | None,
    method: str,
    images: int,
    batch: int,
    folds: int,
    memory_limit: float | None,
    as_json: bool,
) -> None:
    """Say how much memory a few-shot run needs.

    Prints the arithmetic item by item, and how to make it fit: folds one after another, a narrower storage,
    fewer vectors. Nothing is trained.
    """
    from atlas_engine import runtime
    from atlas_engine.adapt.memory_plan import memory_to_use, plan_few_shot
    from atlas_engine.adapt.methods import find_method
    from atlas_engine.bank.bank_file import BankFile
    from atlas_engine.engine import open as open_atlas

    with open_atlas(model, bank=bank) as engine:
        path = None if vectors and storage else engine.bank_path
        if path is not None:
            with BankFile(path) as file:
                vectors, storage = vectors or len(file.tasks), storage or file.storage
        elif not (vectors and storage):
            raise click.UsageError(f"{model} has no bank on this machine. Give --vectors and --storage.")
        limit = (
            memory_to_use(engine.backbone.device, memory_limit) or runtime.memory_report().available_nbytes
        )
        if limit is None:
            raise click.UsageError("this system does not tell how much memory is free. Give --memory-limit.")
        found = plan_few_shot(
            engine.backbone,
            find_method("few-shot", method),
            tasks=vectors,
            storage=storage,
            images=images,
            batch=batch,
            views=DEFAULTS.views,
            runs=folds + 1 if method == "auto" else 1,
            limit_nbytes=limit,
        )
    if as_json:
        emit_json({**asdict(found), "nbytes": found.nbytes, "fits": found.fits})
    else:
        emit(str(found))
