"""`atlas bank list|show|verify|compress`: bank files, looked at and stored otherwise."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlas_engine.cli.command import Command, MisuseError
from atlas_engine.cli.output import add_json_flag, emit, emit_json, writable
from atlas_engine.cli.progress import Progress
from atlas_engine.config import assets_folder
from atlas_engine.errors import BankError
from atlas_engine.files import human_nbytes
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from torch import Tensor

    from atlas_engine.bank import BankFile

__all__ = ["COMPRESS", "LIST", "SHOW", "VERIFY"]

ENDING = "*.safetensors"


def list_arguments(parser: argparse.ArgumentParser) -> None:
    """More places to look in, and `--json`."""
    parser.add_argument("places", nargs="*", type=Path, metavar="PATH", help="bank files, or folders of them")
    add_json_flag(parser)


def run_list(args: argparse.Namespace) -> int:
    """Print the banks on this machine, then the public ones and whether they are here."""
    from atlas_engine.bank.bank_file import banks_folder

    for place in args.places:
        if not place.exists():
            raise MisuseError(f"{place} does not exist. Give a bank file, or a folder of them.")
    kept = banks_folder()
    files = [*_files((assets_folder() / "bank", kept)), *_files(args.places)]
    rows = [_listed(path) for path in dict.fromkeys(files)] + _public(kept)
    if args.json:
        emit_json(rows)
        return 0
    columns = ("bank", "here", "vectors", "storage", "size", "what")
    shown = [
        (row["bank"], row["here"], row["vectors"], row["storage"], _size(row["nbytes"]), row["about"])
        for row in rows
    ]
    emit(table(shown, columns))
    return 0


def show_arguments(parser: argparse.ArgumentParser) -> None:
    """A bank file, and `--json`."""
    parser.add_argument("bank", type=Path, metavar="FILE", help="a bank file")
    add_json_flag(parser)


def run_show(args: argparse.Namespace) -> int:
    """Print what the bank is and each vector's story; the norms are read off the file, block by block."""
    from atlas_engine.bank import BankFile
    from atlas_engine.bank.bank_file import vector_norms

    with BankFile(args.bank) as file:
        with Progress(len(file.blocks), "reading") as progress:
            lengths = vector_norms(file, on_block=progress.advance)
        facts = _facts(args.bank, file)
        vectors = [
            {"name": task, "norm": norm if math.isfinite(norm) else None, **dataclasses.asdict(info)}
            for task, info, norm in zip(file.tasks, file.infos, lengths, strict=True)
        ]
    if args.json:
        emit_json({**facts, "vectors": vectors})
        return 0
    emit(table([(name, _words(name, value)) for name, value in facts.items()], ("bank", args.bank.name)))
    emit("")
    emit(table([_vector_row(vector) for vector in vectors], VECTOR_COLUMNS))
    return 0


def verify_arguments(parser: argparse.ArgumentParser) -> None:
    """A bank file, and the model it should belong to."""
    parser.add_argument("bank", type=Path, metavar="FILE", help="a bank file")
    parser.add_argument("--model", metavar="M", help="also compare the base with this model's image tower")
    add_json_flag(parser)


def run_verify(args: argparse.Namespace) -> int:
    """Print what was looked at; exit code 1 if anything is wrong."""
    from atlas_engine.bank.bank_file import check_bank

    base = None if args.model is None else _image_tower(args.model)
    with Progress(None, "checking") as progress:
        checks = check_bank(args.bank, base=base, on_block=progress.advance)
    good = all(check.good for check in checks)
    if args.json:
        emit_json({"ok": good, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        emit(table([(check.name, check.good, check.detail) for check in checks], ("", "ok", "found")))
    return 0 if good else 1


def compress_arguments(parser: argparse.ArgumentParser) -> None:
    """A bank file, the format to store it in, and where."""
    parser.add_argument("bank", type=Path, metavar="FILE", help="a bank file")
    parser.add_argument(
        "-o", "--output", type=writable, required=True, metavar="OUT", help="bank file to write"
    )
    parser.add_argument(
        "--storage", required=True, metavar="S", help="float16, bfloat16, int8, int4 or low-rank-N"
    )
    add_json_flag(parser)


def run_compress(args: argparse.Namespace) -> int:
    """Write the bank in another format, and print what that costs each vector."""
    from atlas_engine.bank import load_bank, save_bank
    from atlas_engine.bank.edit import fidelity
    from atlas_engine.bank.storage import storage_named

    storage = storage_named(args.storage).name
    before_nbytes = args.bank.stat().st_size if args.bank.is_file() else 0
    bank = load_bank(args.bank)
    small = bank.stored_as(storage)
    kept = fidelity(bank, small)
    save_bank(small, args.output)
    nbytes = args.output.stat().st_size
    if args.json:
        vectors = [{"name": name, **dataclasses.asdict(near)} for name, near in kept.items()]
        facts = {"file": str(args.output), "storage": storage, "nbytes": nbytes}
        emit_json({**facts, "nbytes_before": before_nbytes, "vectors": vectors})
        return 0
    rows = [(name, near.cosine, 100 * near.relative_error) for name, near in kept.items()]
    emit(table(rows, ("vector", "cosine", "error %")))
    emit(f"\n{args.output}: {human_nbytes(nbytes)} as {storage}, from {human_nbytes(before_nbytes)}")
    return 0


VECTOR_COLUMNS = ("vector", "data set", "before %", "after %", "norm", "from")


def _vector_row(vector: dict[str, Any]) -> tuple[object, ...]:
    before, after = (
        None if vector[key] is None else 100 * vector[key] for key in ("accuracy_before", "accuracy_after")
    )
    origin = vector["provenance"].get("source", "")
    return vector["name"], vector["dataset"], before, after, vector["norm"], origin


def _facts(path: Path, file: BankFile) -> dict[str, Any]:
    nbytes = path.stat().st_size
    return {
        "file": str(path),
        "storage": file.storage,
        "nbytes": nbytes,
        "nbytes_per_vector": file.nbytes // len(file.tasks),
        "blocks": len(file.blocks),
        "parameters": file.blocks.numel,
        "base": file.base,
    }


def _words(name: str, value: object) -> str:
    return human_nbytes(value) if isinstance(value, int) and name.startswith("nbytes") else str(value)


def _files(places: Iterable[Path]) -> list[Path]:
    return [
        path
        for place in places
        for path in (sorted(place.glob(ENDING)) if place.is_dir() else [place])
        if path.is_file()
    ]


def _listed(path: Path) -> dict[str, Any]:
    from atlas_engine.bank import BankFile

    row = {"bank": path.stem, "here": True, "file": str(path), "vectors": None, "storage": None}
    row |= {"nbytes": path.stat().st_size, "base": None, "model": None}
    try:
        with BankFile(path) as file:
            row |= {"vectors": len(file.tasks), "storage": file.storage, "base": file.base}
            about = f"{path}, base {file.base[:12]}"
    except BankError as error:
        about = str(error)
    return row | {"about": about}


def _public(kept: Path) -> list[dict[str, Any]]:
    """The public banks, and whether each lies where `atlas bank import NAME` puts it."""
    from atlas_engine.clip.checkpoints.public import PUBLIC_BANKS

    return [
        {
            "bank": bank.name,
            "here": (kept / f"{bank.name}.safetensors").is_file(),
            "file": None,
            "vectors": len(bank.checkpoints) or None,
            "storage": None,
            "nbytes": None,
            "base": None,
            "model": bank.model,
            "about": f"public: {bank.about}",
        }
        for bank in PUBLIC_BANKS.values()
    ]


def _size(nbytes: int | None) -> str | None:
    return None if nbytes is None else human_nbytes(nbytes)


def _image_tower(model: str) -> dict[str, Tensor]:
    import torch

    from atlas_engine.clip.backbone import open_backbone

    return dict(open_backbone(model, device=torch.device("cpu")).visual.named_parameters())


LIST = Command(
    list_arguments,
    run_list,
    ("atlas bank list", "atlas bank list runs/banks --json"),
    about="Banks are looked for in assets/bank, among the imported ones, and in the places given.",
)
SHOW = Command(
    show_arguments,
    run_show,
    ("atlas bank show b32.safetensors", "atlas bank show b32.safetensors --json"),
)
VERIFY = Command(
    verify_arguments,
    run_verify,
    ("atlas bank verify b32.safetensors", "atlas bank verify bank.safetensors --model bundled"),
    about="Reads every number once: header, checksums, finite numbers and, with --model, the base.",
)
COMPRESS = Command(
    compress_arguments,
    run_compress,
    (
        "atlas bank compress b32.safetensors --storage int8 -o b32-int8.safetensors",
        "atlas bank compress b32.safetensors --storage low-rank-16 -o small.safetensors --json",
    ),
    about="The cosine and the error compare the stored vectors with those in FILE.",
)
