"""`atlas bank dummy`: a bank filled up with dummy vectors, to try a large one without training it."""

from __future__ import annotations

from pathlib import Path

import click

from atlas_engine.cli.options import bank_option, command, json_flag, model_option, positive, writable
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.files import human_nbytes

__all__ = ["dummy"]


@command(
    "atlas bank dummy --vectors 500 -o dummy-500.safetensors",
    "atlas bank dummy --vectors 200 --bank bank.safetensors -o dummy-200.safetensors --seed 1",
)
@click.option("--vectors", type=positive, required=True, metavar="N", help="vectors in all")
@click.option("-o", "--output", type=writable, required=True, metavar="OUT", help="bank file to write")
@bank_option()
@model_option
@click.option("--seed", type=int, default=0, metavar="N", help="of the dummies (default 0)")
@json_flag
def dummy(*, vectors: int, output: Path, bank: Path | None, model: str, seed: int, as_json: bool) -> None:
    """Fill a bank up with dummy vectors.

    The bank's own vectors come first, as they are. A dummy has the stored numbers of one of them, rolled
    along each block, and so its size and storage, but another direction; it is good for nothing but timing.
    """
    from atlas_engine.bank import save_bank
    from atlas_engine.engine import open as open_atlas
    from studies.banks.dummy import dummy_bank

    with open_atlas(model, bank=bank) as engine:
        longer = dummy_bank(engine.bank, vectors=vectors, seed=seed)
    save_bank(longer, output)
    nbytes = output.stat().st_size
    if as_json:
        emit_json({"file": str(output), "vectors": vectors, "storage": longer.storage, "nbytes": nbytes})
        return
    emit(f"{output}: {vectors} vectors, {human_nbytes(nbytes)} as {longer.storage}")
