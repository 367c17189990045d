"""`atlas bank residency`: where the vectors of a bank are, and which of them a run would read."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas_engine.cli.options import PATH, command, json_flag, model_option, positive
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.files import human_nbytes
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.bank.residency import Residency, VectorPlace
    from atlas_engine.engine import Atlas

__all__ = ["residency"]


@command(
    "atlas bank residency bank.safetensors",
    "atlas bank residency bank-500.safetensors --photos my_photos --budget 8 --memory 256",
)
@click.argument(
    "bank", required=False, type=PATH, metavar="[FILE]", help="a bank file (default: the model's own)"
)
@model_option
@click.option("--photos", type=PATH, metavar="DIR", help="choose for these: one sub-folder a class")
@click.option("--budget", type=positive, default=8, metavar="N", help="vectors to choose (default 8)")
@click.option(
    "--memory",
    type=float,
    metavar="MIB",
    help="memory for vectors; a larger bank stays on disk (default: ATLAS_BANK_MEMORY, or 1024)",
)
@json_flag
def residency(
    *, bank: Path | None, model: str, photos: Path | None, budget: int, memory: float | None, as_json: bool
) -> None:
    """Say where a bank's vectors are.

    A bank larger than --memory stays on disk. With --photos, the vectors for them are chosen as a few-shot
    run does it, and what that brought onto the device and into memory is told; nothing is learned.
    """
    from atlas_engine.engine import open as open_atlas

    if memory is not None and memory < 0:
        raise click.UsageError(f"--memory is {memory} but must be 0 or more.")
    with open_atlas(model, bank=bank, bank_memory=memory) as engine, ExitStack() as stack:
        if photos is not None:
            _choose_vectors(engine, photos, budget, stack)
        found = engine.bank.residency()
        if as_json:
            emit_json(_as_dict(found))
            return
        emit(str(found))
        if found.index_nbytes:
            emit(f"index: {human_nbytes(found.index_nbytes)}, beside the header of the file")
        near = [place for place in found.vectors if place.memory_nbytes]
        if near:
            ranked = sorted(near, key=lambda place: (place.tier.value, -(place.score or 0.0)))
            emit(
                "\n"
                + table([_row(place) for place in ranked], ("vector", "nearest tier", "score", "in memory"))
            )


def _choose_vectors(engine: Atlas, photos: Path, budget: int, stack: ExitStack) -> None:
    """Begin a run, up to the first step after its selection; it ends with `stack`."""
    from atlas_engine.data.support import Support

    run = engine.few_shot(Support.from_folder(photos), method="atlas", budget=budget)
    stack.callback(run.cancel)
    next((step for step in run if step.phase != "select"), None)


def _row(place: VectorPlace) -> tuple[object, ...]:
    return place.task, place.tier.value, place.score, human_nbytes(place.memory_nbytes)


def _as_dict(found: Residency) -> dict[str, Any]:
    return {
        "device": found.device,
        "device_nbytes": found.device_nbytes,
        "memory_nbytes": found.memory_nbytes,
        "memory_limit_nbytes": found.memory_limit_nbytes,
        "disk_nbytes": found.disk_nbytes,
        "index_nbytes": found.index_nbytes,
        "vectors": [
            {
                "name": place.task,
                "tier": place.tier.value,
                "score": place.score,
                "memory_nbytes": place.memory_nbytes,
            }
            for place in found.vectors
        ],
    }
