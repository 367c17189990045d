"""`atlas bank list|show|verify|compress|import`: bank files, looked at, stored otherwise and made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from atlas_engine.cli.options import PATH, Spread, command, json_flag, spread_options, writable
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.cli.progress import ProgressBar, run_with_bar, say_fetching
from atlas_engine.config import assets_folder
from atlas_engine.errors import BankError
from atlas_engine.files import human_nbytes
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from torch import Tensor

    from atlas_engine.bank import BankFile
    from atlas_engine.clip.checkpoints.sources import CheckpointSource
    from atlas_engine.library import ImportedVector

__all__ = ["compress", "import_checkpoints", "list_banks", "show", "verify"]

VECTOR_COLUMNS = ("vector", "data set", "before %", "after %", "norm", "from")

bank_argument = click.argument("bank", type=PATH, metavar="FILE", help="a bank file")


# ---- atlas bank list


@command("atlas bank list", "atlas bank list runs/banks --json")
@click.argument("places", nargs=-1, type=PATH, metavar="[PATH...]", help="bank files, or folders of them")
@json_flag
def list_banks(*, places: tuple[Path, ...], as_json: bool) -> None:
    """List banks: here, and public ones.

    Banks are looked for in assets/bank, among the imported ones, and in the places given.
    """
    from atlas_engine.bank.bank_file import banks_folder

    for place in places:
        if not place.exists():
            raise click.UsageError(f"{place} does not exist. Give a bank file, or a folder of them.")
    imported = banks_folder()
    files = [*_bank_files((assets_folder() / "bank", imported)), *_bank_files(places)]
    rows = [_local_row(path) for path in dict.fromkeys(files)] + _public_rows(imported)
    if as_json:
        emit_json(rows)
        return
    shown = [
        (row["bank"], row["here"], row["vectors"], row["storage"], _size(row["nbytes"]), row["about"])
        for row in rows
    ]
    emit(table(shown, ("bank", "here", "vectors", "storage", "size", "what")))


def _bank_files(places: Iterable[Path]) -> list[Path]:
    return [
        path
        for place in places
        for path in (sorted(place.glob("*.safetensors")) if place.is_dir() else [place])
        if path.is_file()
    ]


def _local_row(path: Path) -> dict[str, Any]:
    """What is known of a file on this machine; one that is no bank says so."""
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


def _public_rows(imported: Path) -> list[dict[str, Any]]:
    """The public banks, and whether each lies where `atlas bank import` puts it."""
    from atlas_engine.clip.checkpoints.public import PUBLIC_BANKS

    return [
        {
            "bank": bank.name,
            "here": (imported / f"{bank.name}.safetensors").is_file(),
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


# ---- atlas bank show


@command("atlas bank show b32.safetensors", "atlas bank show b32.safetensors --json")
@bank_argument
@json_flag
def show(*, bank: Path, as_json: bool) -> None:
    """Print what a bank holds."""
    from atlas_engine.bank import BankFile
    from atlas_engine.bank.check import vector_norms

    with BankFile(bank) as file:
        with ProgressBar(len(file.blocks), "reading") as progress:
            norms = vector_norms(file, on_block=progress.advance)  # read off the file, block by block
        facts = _bank_facts(bank, file)
        vectors = [
            {"name": task, "norm": norm if math.isfinite(norm) else None, **dataclasses.asdict(info)}
            for task, info, norm in zip(file.tasks, file.infos, norms, strict=True)
        ]
    if as_json:
        emit_json({**facts, "vectors": vectors})
        return
    emit(table([(name, _in_words(name, value)) for name, value in facts.items()], ("bank", bank.name)))
    emit("")
    emit(table([_vector_row(vector) for vector in vectors], VECTOR_COLUMNS))


def _bank_facts(path: Path, file: BankFile) -> dict[str, Any]:
    return {
        "file": str(path),
        "kind": file.kind,
        "storage": file.storage,
        "nbytes": path.stat().st_size,
        "nbytes_per_vector": file.nbytes // len(file.tasks),
        "blocks": len(file.blocks),
        "parameters": file.blocks.numel,
        "base": file.base,
    }


def _in_words(name: str, value: object) -> str:
    return human_nbytes(value) if isinstance(value, int) and name.startswith("nbytes") else str(value)


def _vector_row(vector: dict[str, Any]) -> tuple[object, ...]:
    before, after = (
        None if vector[key] is None else 100 * vector[key] for key in ("accuracy_before", "accuracy_after")
    )
    source = vector["provenance"].get("source", "")
    return vector["name"], vector["dataset"], before, after, vector["norm"], source


# ---- atlas bank verify


@command("atlas bank verify b32.safetensors", "atlas bank verify bank.safetensors --model bundled")
@bank_argument
@click.option("--model", metavar="M", help="also compare the base with this model's image tower")
@json_flag
def verify(*, bank: Path, model: str | None, as_json: bool) -> None:
    """Check a bank file, and that it fits a model.

    Reads every number once: header, checksums, finite numbers and, with --model, the base. The exit code is 1
    if anything is wrong.
    """
    from atlas_engine.bank.check import check_bank

    base = None if model is None else _image_tower(model)
    with ProgressBar(None, "checking") as progress:
        checks = check_bank(bank, base=base, on_block=progress.advance)
    good = all(check.good for check in checks)
    if as_json:
        emit_json({"ok": good, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        emit(table([(check.name, check.good, check.detail) for check in checks], ("", "ok", "found")))
    if not good:
        raise click.exceptions.Exit(1)


def _image_tower(model: str) -> dict[str, Tensor]:
    import torch

    from atlas_engine.clip.models import open_backbone

    return dict(open_backbone(model, device=torch.device("cpu")).visual.named_parameters())


# ---- atlas bank compress


@command(
    "atlas bank compress b32.safetensors --storage int8 -o b32-int8.safetensors",
    "atlas bank compress b32.safetensors --storage low-rank-16 -o small.safetensors --json",
)
@bank_argument
@click.option("-o", "--output", type=writable, required=True, metavar="OUT", help="bank file to write")
@click.option("--storage", required=True, metavar="S", help="float16, bfloat16, int8, int4 or low-rank-N")
@json_flag
def compress(*, bank: Path, output: Path, storage: str, as_json: bool) -> None:
    """Store a bank in fewer bytes.

    The cosine and the error compare the stored vectors with those in FILE.
    """
    from atlas_engine.bank import edit, load_bank, save_bank
    from atlas_engine.bank.storage import find_storage

    storage = find_storage(storage).name
    nbytes_before = bank.stat().st_size if bank.is_file() else 0
    original = load_bank(bank)
    small = original.stored_as(storage)
    fidelity = edit.fidelity(original, small)
    save_bank(small, output)
    nbytes = output.stat().st_size
    if as_json:
        vectors = [{"name": name, **dataclasses.asdict(kept)} for name, kept in fidelity.items()]
        facts = {"file": str(output), "storage": storage, "nbytes": nbytes}
        emit_json({**facts, "nbytes_before": nbytes_before, "vectors": vectors})
        return
    rows = [(name, kept.cosine, 100 * kept.relative_error) for name, kept in fidelity.items()]
    emit(table(rows, ("vector", "cosine", "error %")))
    emit(f"\n{output}: {human_nbytes(nbytes)} as {storage}, from {human_nbytes(nbytes_before)}")


# ---- atlas bank import


@command(
    "atlas bank import tanganke-b32 --storage int8",
    "atlas bank import runs/cars.pt signs=runs/7.pt --model ViT-B-32-quickgelu@base.pt -o b.safetensors",
)
@click.argument(
    "sources",
    nargs=-1,
    required=True,
    metavar="SOURCE...",
    help="checkpoint files or folders of them, bank files, hub ids, a public bank; NAME=SOURCE names one",
)
@click.option(
    "--model", metavar="M", help="what they were tuned from (default: bundled, or the public bank's)"
)
@click.option(
    "-o",
    "--output",
    type=writable,
    metavar="OUT",
    help="bank file to write (default, of a public bank: cache)",
)
@click.option("--storage", metavar="S", help="float32, float16 (default), int8, int4, low-rank-N")
@click.option("--lora-alpha", type=float, metavar="A", help="of LoRA files that do not tell theirs")
@click.option(
    "--kind",
    metavar="K",
    help="how they were tuned: standard, lora or linear (default: lora for LoRA files, else standard)",
)
@spread_options("checkpoints")
@json_flag
def import_checkpoints(
    *,
    sources: tuple[str, ...],
    model: str | None,
    output: Path | None,
    storage: str | None,
    lora_alpha: float | None,
    kind: str | None,
    spread: Spread,
    as_json: bool,
) -> None:
    """Make a bank from checkpoints.

    Reads transformers and open_clip weights, pickled modules and LoRA adapters; nothing in them is run.
    `atlas bank list` names the public banks.
    """
    from atlas_engine.bank.storage import find_storage
    from atlas_engine.bank.vector import check_kind
    from atlas_engine.clip.checkpoints.public import PUBLIC_BANKS
    from atlas_engine.clip.checkpoints.sources import find_sources, nbytes_to_fetch
    from atlas_engine.clip.models import model_files_to_fetch
    from atlas_engine.library import STORAGE

    storage, kind = find_storage(storage or STORAGE).name, None if kind is None else check_kind(kind)
    public = PUBLIC_BANKS.get(sources[0]) if len(sources) == 1 else None
    if output is None and public is None:
        raise click.UsageError("say where to: -o OUT. Only a public bank, alone, has a place of its own.")
    model = model or (public.model if public else "bundled")
    target = output or _place_of_public_bank(sources[0])
    found = find_sources(sources)
    to_fetch = sum(file.nbytes for file in model_files_to_fetch(model)) + nbytes_to_fetch(found)
    if to_fetch:
        say_fetching(to_fetch)
    how = _Import(found, model, target, storage=storage, lora_alpha=lora_alpha, kind=kind)
    vectors = how.in_process(to_fetch) if spread.on is None else how.spread(spread)
    nbytes = target.stat().st_size
    if as_json:
        facts = {"file": str(target), "storage": storage, "nbytes": nbytes, "model": model}
        emit_json({**facts, "vectors": [dataclasses.asdict(vector) for vector in vectors]})
        return
    rows = [(vector.name, vector.layout, vector.norm, vector.source) for vector in vectors]
    emit(table(rows, ("vector", "layout", "norm", "from")))
    emit(f"\n{target}: {len(rows)} vectors, {human_nbytes(nbytes)} as {storage}")
    for note in dict.fromkeys(filter(None, (vector.note for vector in vectors))):
        emit(f"the projection of {sum(vector.note == note for vector in vectors)} is {note}")
    for vector in vectors:
        if vector.left_out:
            emit(f"left out of {vector.name}: {vector.left_out}")


@dataclasses.dataclass(frozen=True)
class _Import:
    """What is imported, and how."""

    found: Sequence[CheckpointSource]
    model: str
    target: Path
    _: dataclasses.KW_ONLY
    storage: str
    lora_alpha: float | None
    kind: str | None

    def in_process(self, to_fetch: int) -> list[ImportedVector]:
        """One source after another, under a bar of the bytes that the hub sends."""
        import torch

        from atlas_engine.clip.models import open_backbone
        from atlas_engine.library import import_bank

        vectors: list[ImportedVector] = []
        with ProgressBar(to_fetch or len(self.found), "importing", in_bytes=to_fetch > 0) as progress:
            backbone = open_backbone(self.model, device=torch.device("cpu"), on_bytes=progress.advance)
            imported = import_bank(
                self.found,
                backbone,
                self.target,
                storage=self.storage,
                on_bytes=progress.advance,
                lora_alpha=self.lora_alpha,
                kind=self.kind,
            )
            for vector in imported:
                vectors.append(vector)
                progress.advance(0 if to_fetch else 1, vector.name)
        return vectors

    def spread(self, spread: Spread) -> list[ImportedVector]:
        """A task for each source; what is done is kept beside the bank file until all are there."""
        import torch

        from atlas_engine.bank.bank_file import save_bank
        from atlas_engine.clip.models import open_backbone
        from atlas_engine.executors import Ledger
        from atlas_engine.jobs.imports import import_tasks, imported_vectors
        from atlas_engine.jobs.train import collect_bank
        from atlas_engine.library import require_memory, tower_weights

        backbone = open_backbone(self.model, device=torch.device("cpu"))
        require_memory(tower_weights(backbone), self.storage, len(self.found))
        ledger = Ledger(self.target.with_name(f"{self.target.name}.tasks"))
        tasks = import_tasks(
            self.found,
            backbone,
            self.model,
            storage=self.storage,
            threads=spread.threads,
            lora_alpha=self.lora_alpha,
            kind=self.kind,
        )
        with spread.open() as executor:
            done = list(run_with_bar(tasks, len(self.found), "importing", executor=executor, ledger=ledger))
        save_bank(collect_bank(done), self.target)
        ledger.remove()
        return [vector for one in done for vector in imported_vectors(one.facts)]


def _place_of_public_bank(name: str) -> Path:
    from atlas_engine.bank.bank_file import banks_folder

    folder = banks_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.safetensors"
