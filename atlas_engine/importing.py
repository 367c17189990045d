"""Other people's checkpoints as a bank file. Above `clip`, which reads them, and `bank`, which keeps them.

    backbone = open_backbone("ViT-B-32-quickgelu/openai", device=torch.device("cpu"))
    for vector in import_bank(find_sources(["tanganke-b32"]), backbone, "b32.safetensors", storage="int8"):
        print(vector.name, vector.norm)

One checkpoint is in memory at a time, beside the vectors that were already stored. The file appears at the
end, whole; until then, and after any error, what was there before stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from atlas_engine.bank import TaskVector, TaskVectorBank, VectorInfo, block_table, fingerprint
from atlas_engine.bank.join import joined
from atlas_engine.bank.storage import storage_named, vector_nbytes
from atlas_engine.bank.store import FORMAT, load_bank, save_bank
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.foreign import hub
from atlas_engine.clip.foreign.card import told_accuracies
from atlas_engine.clip.foreign.sources import Source
from atlas_engine.clip.foreign.tower import activation_of, configured_activation, read_tower
from atlas_engine.errors import BankError
from atlas_engine.files import human_nbytes
from atlas_engine.runtime import memory_report

__all__ = ["STORAGE", "Imported", "import_bank"]

STORAGE = "float16"


@dataclass(frozen=True)
class Imported:
    """One vector on its way into the bank."""

    name: str
    source: str
    layout: str
    norm: float
    note: str = ""


def import_bank(
    sources: Sequence[Source], backbone: Backbone, path: Path | str, *, storage: str = STORAGE
) -> Iterator[Imported]:
    """Read each checkpoint, take its difference from the backbone's image tower, and write the bank.

    Yields a vector when it is stored, and writes the file after the last. A source may also be a bank file of
    the same base: its vectors join.
    """
    theta0 = {name: weights.detach().cpu() for name, weights in backbone.visual.named_parameters()}
    _require_room(theta0, storage, len(sources))
    banks: list[TaskVectorBank] = []
    for source in sources:
        file = hub.fetch(source.where) if source.is_remote else Path(source.where)
        if _is_bank(file):
            bank = _checked_bank(file, theta0, backbone).stored_as(storage)
            yield from (_imported(bank.vector(task), source, "bank") for task in bank.tasks)
        else:
            vector, layout = _vector(source, file, theta0, backbone)
            bank = TaskVectorBank.from_vectors([vector], storage=storage)
            yield _imported(vector, source, layout)
        banks.append(bank)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    save_bank(joined(banks), path)


def _imported(vector: TaskVector, source: Source, layout: str) -> Imported:
    note = vector.info.provenance.get("projection", "")
    return Imported(vector.name, source.where, layout, vector.norm(), note)


def _vector(
    source: Source, file: Path, theta0: Mapping[str, Tensor], backbone: Backbone
) -> tuple[TaskVector, str]:
    theirs, ours = configured_activation(file), activation_of(backbone.visual)
    if theirs in ("gelu", "quick_gelu") and theirs != ours:
        raise BankError(
            f"'{source.where}' was tuned with {theirs}, but {backbone.name} computes {ours}: its features "
            "would differ. OpenAI's weights need a -quickgelu model, as in ViT-B-32-quickgelu/openai."
        )
    tower = read_tower(file, shapes={name: tuple(weights.shape) for name, weights in theta0.items()})
    provenance = {"source": source.where if source.is_remote else file.name, "layout": tower.layout}
    if tower.absent:
        provenance["projection"] = "not in the checkpoint: the base's own, unchanged"
    before, after = told_accuracies(file)
    info = VectorInfo(
        dataset=source.name, accuracy_before=before, accuracy_after=after, provenance=provenance
    )
    tuned = tower.weights | {name: theta0[name] for name in tower.absent}
    return TaskVector.between(source.name, base=theta0, tuned=tuned, info=info), tower.layout


def _is_bank(file: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    if file.suffix != ".safetensors":
        return False
    try:
        with safe_open(file, framework="pt") as opened:
            return (opened.metadata() or {}).get("format") == FORMAT
    except (SafetensorError, OSError):
        return False  # the reader of checkpoints says what is wrong with it


def _checked_bank(file: Path, theta0: Mapping[str, Tensor], backbone: Backbone) -> TaskVectorBank:
    bank, base = load_bank(file), fingerprint(theta0)
    if bank.base != base:
        raise BankError(
            f"{file.name} has vectors of another base ({bank.base[:12]}) than {backbone.name} ({base[:12]})."
            " Give the model that they were taken from."
        )
    return bank


def _require_room(theta0: Mapping[str, Tensor], storage: str, count: int) -> None:
    """Raise while it is early if the vectors will not fit: they are held twice while they are joined."""
    needed = 2 * count * vector_nbytes(block_table(theta0.items()), storage_named(storage))
    available = memory_report().available_nbytes
    if available is not None and needed > available:
        raise BankError(
            f"{count} vectors as {storage} need {human_nbytes(needed)} of memory and "
            f"{human_nbytes(available)} are free. "
            "Choose a narrower storage, as int8 or int4, or import fewer at a time."
        )
