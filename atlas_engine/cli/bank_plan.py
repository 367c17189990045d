"""`atlas bank plan`: how much memory a few-shot run needs with a bank, before it is started."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from atlas_engine.adapt.methods import FEW_SHOT_METHODS
from atlas_engine.adapt.settings import FewShotConfig
from atlas_engine.cli.options import bank_option, command, json_flag, method_option, model_option, positive
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.errors import ConfigError

__all__ = ["plan"]


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
@click.option("--batch", type=positive, metavar="N", help="images per step (default: the method's own)")
@click.option(
    "--micro-batch", type=positive, metavar="N",
    help="images in the model at a time (default: the method's own)",
)  # fmt: skip
@click.option("--views", type=positive, metavar="N", help="kept views of each image (default: the method's)")
@click.option(
    "--share", type=float, metavar="X", help="share of the tower that may move (default: the method's own)"
)
@click.option("--folds", type=positive, metavar="N", help="folds that `auto` holds out (default: its own)")
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
    memory_limit: float | None,
    as_json: bool,
    **given: float | None,
) -> None:
    """Say how much memory a few-shot run needs.

    Prints the arithmetic item by item, and how to make it fit: folds one after another, a batch in parts, a
    narrower storage, fewer vectors. Nothing is trained.
    """
    from atlas_engine import runtime
    from atlas_engine.adapt.memory_plan import memory_to_use, plan_few_shot
    from atlas_engine.adapt.methods import find_method
    from atlas_engine.adapt.settings import effective_few_shot_config
    from atlas_engine.bank.bank_file import BankFile
    from atlas_engine.engine import open as open_atlas

    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    row = find_method("few-shot", method)
    try:
        config = effective_few_shot_config(FewShotConfig(**chosen), row, images=images)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
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
            row,
            tasks=vectors,
            storage=storage,
            images=images,
            batch=config.batch,
            micro_batch=config.micro_batch,
            views=config.views,
            runs=config.folds + 1 if method == "auto" else 1,
            share=config.share,
            limit_nbytes=limit,
        )
    if as_json:
        emit_json({**asdict(found), "nbytes": found.nbytes, "fits": found.fits})
    else:
        emit(str(found))
