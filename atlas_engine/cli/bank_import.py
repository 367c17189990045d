"""`atlas bank import`: other people's checkpoints as a bank."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.cli.command import Command, MisuseError
from atlas_engine.cli.output import add_json_flag, emit, emit_json, writable
from atlas_engine.cli.progress import Progress
from atlas_engine.files import human_nbytes
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.library import ImportedVector

__all__ = ["IMPORT"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Checkpoints, the model they were tuned from, and the file to write."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="checkpoint files or folders of them, bank files, hub ids, a public bank; NAME=SOURCE names one",
    )
    parser.add_argument(
        "--model", metavar="M", help="what they were tuned from (default: bundled, or the public bank's)"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=writable,
        metavar="OUT",
        help="bank file to write (default, of a public bank: cache)",
    )
    parser.add_argument("--storage", metavar="S", help="float32, float16 (default), int8, int4, low-rank-N")
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Import, and print a row for each vector."""
    import torch

    from atlas_engine.bank.storage import storage_named
    from atlas_engine.clip.checkpoints.sources import find_sources
    from atlas_engine.clip.models import open_backbone
    from atlas_engine.library import STORAGE, import_bank

    storage = storage_named(args.storage or STORAGE).name
    model, output = _model_and_output(args)
    sources = find_sources(args.sources)
    backbone = open_backbone(model, device=torch.device("cpu"))
    vectors: list[ImportedVector] = []
    with Progress(len(sources), "importing") as progress:
        for vector in import_bank(sources, backbone, output, storage=storage):
            vectors.append(vector)
            progress.advance(1, vector.name)
    nbytes = output.stat().st_size
    if args.json:
        facts = {"file": str(output), "storage": storage, "nbytes": nbytes, "model": model}
        emit_json({**facts, "vectors": [dataclasses.asdict(vector) for vector in vectors]})
        return 0
    rows = [(it.name, it.layout, it.norm, it.source) for it in vectors]
    emit(table(rows, ("vector", "layout", "norm", "from")))
    emit(f"\n{output}: {len(rows)} vectors, {human_nbytes(nbytes)} as {storage}")
    for note in dict.fromkeys(filter(None, (it.note for it in vectors))):
        emit(f"the projection of {sum(it.note == note for it in vectors)} is {note}")
    return 0


def _model_and_output(args: argparse.Namespace) -> tuple[str, Path]:
    """As given; a public bank, alone, knows its own model and place."""
    from atlas_engine.bank.bank_file import banks_folder
    from atlas_engine.clip.checkpoints.public import PUBLIC_BANKS

    known = PUBLIC_BANKS.get(args.sources[0]) if len(args.sources) == 1 else None
    model = args.model or (known.model if known else "bundled")
    if args.output is None and known is None:
        raise MisuseError("say where to: -o OUT. Only a public bank, alone, has a place of its own.")
    if args.output is None:
        folder = banks_folder()
        folder.mkdir(parents=True, exist_ok=True)
        return model, folder / f"{args.sources[0]}.safetensors"
    return model, args.output


IMPORT = Command(
    arguments,
    run,
    examples=(
        "atlas bank import tanganke-b32 --storage int8",
        "atlas bank import runs/cars.pt signs=runs/7.pt --model ViT-B-32-quickgelu@base.pt -o b.safetensors",
    ),
    about=(
        "Reads transformers and open_clip weights and pickled modules; nothing in them is run. "
        "`atlas bank list` names the public banks."
    ),
)
