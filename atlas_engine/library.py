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

from atlas_engine import runtime
from atlas_engine.bank import TaskVector, TaskVectorBank, VectorInfo, block_table, fingerprint
from atlas_engine.bank.bank_file import BANK_FORMAT, BankFile, banks_folder, find_bank, load_bank, save_bank
from atlas_engine.bank.edit import join_banks
from atlas_engine.bank.storage import storage_named, vector_nbytes
from atlas_engine.cache import Cache
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.models import open_backbone
from atlas_engine.clip.checkpoints import hub
from atlas_engine.clip.checkpoints.card import reported_accuracies
from atlas_engine.clip.checkpoints.public import PUBLIC_BANKS, PublicBank
from atlas_engine.clip.checkpoints.sources import CheckpointSource, find_sources
from atlas_engine.clip.checkpoints.tower import activation_of, configured_activation, read_tower
from atlas_engine.config import cache_folder
from atlas_engine.engine import Atlas
from atlas_engine.errors import BankError
from atlas_engine.files import human_nbytes
from atlas_engine.runtime import memory_report

__all__ = [
    "BUNDLED",
    "STORAGE",
    "AvailableModel",
    "ImportedVector",
    "SetupProgress",
    "available_models",
    "import_bank",
    "prepare",
]

STORAGE = "float16"


@dataclass(frozen=True)
class ImportedVector:
    """One vector on its way into the bank."""

    name: str
    source: str
    layout: str
    norm: float
    note: str = ""


def import_bank(
    sources: Sequence[CheckpointSource], backbone: Backbone, path: Path | str, *, storage: str = STORAGE
) -> Iterator[ImportedVector]:
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
    save_bank(join_banks(banks), path)


def _imported(vector: TaskVector, source: CheckpointSource, layout: str) -> ImportedVector:
    note = vector.info.provenance.get("projection", "")
    return ImportedVector(vector.name, source.where, layout, vector.norm(), note)


def _vector(
    source: CheckpointSource, file: Path, theta0: Mapping[str, Tensor], backbone: Backbone
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
    before, after = reported_accuracies(file)
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
            return (opened.metadata() or {}).get("format") == BANK_FORMAT
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


# ---- A model and its bank, made ready on this machine: found, or fetched and built once, and kept. for
# step in prepare("ViT-B-32/openai"): print(step.phase, step.index, step.of, step.vector) engine =
# step.engine # the last step's; an open session Where it has no bank of its own yet (`bank.finding`), the
# public checkpoints of that model become one (`importing`), under the cache folder. Knows nothing of pages
# or visitors.
BUNDLED = "bundled"
READY_STORAGE = "int4"  # as the bank that ships: a quarter of float16 on disk and in memory


@dataclass(frozen=True)
class AvailableModel:
    """A model that can be had with a bank: how it is named, and what its bank is made of."""

    model: str
    about: str
    sources: tuple[CheckpointSource, ...] = ()
    file: str = ""  # of the bank that is built from them, below `banks_folder()`


@dataclass(frozen=True)
class SetupProgress:
    """How far it is: `model` while it is opened or fetched, `bank` while one is built, `ready` at the end."""

    phase: str
    index: int = 0
    of: int = 0
    vector: str = ""  # the one under way
    engine: Atlas | None = None


def available_models() -> tuple[AvailableModel, ...]:
    """The bundled model, and each that public checkpoints make a bank for."""
    fetchable = (_public(bank) for bank in PUBLIC_BANKS.values() if bank.checkpoints)
    return (AvailableModel(BUNDLED, "ships with the project"), *fetchable)


def prepare(
    model: str | AvailableModel,
    *,
    bank: Path | str | None = None,
    device: str | None = None,
    cache: Cache | bool = True,
) -> Iterator[SetupProgress]:
    """Open the model with `bank`, else with the bank that is its own; the last step has the session.

    A model that has none and for which nothing public is known opens without. A bank file appears whole or
    not at all, so whoever stops half way leaves nothing behind but checkpoints that need no second fetching.
    """
    offer = model if isinstance(model, AvailableModel) else _offer(model)
    yield SetupProgress("model")
    runtime.keep_memory()
    backbone = open_backbone(offer.model, device=runtime.pick_device(device))
    path = _fitting(Path(bank), backbone) if bank else find_bank(_weights(backbone))
    if path is None and offer.sources:
        path = banks_folder() / offer.file
        yield from _built(offer, backbone, path)
    store = Cache(cache_folder()) if cache is True else None if cache is False else cache
    yield SetupProgress("ready", engine=Atlas(backbone, bank_path=path, cache=store))


def _fitting(path: Path, backbone: Backbone) -> Path:
    """The file, if it is a bank of this model; better told now than after somebody has waited."""
    with BankFile(path) as file:
        if file.base != fingerprint(_weights(backbone)):
            raise BankError(
                f"{path.name} was made for another model than {backbone.name}. Give a bank for this one, or "
                f"none to use its own; `atlas bank show FILE` names a bank's model."
            )
    return path


def _built(offer: AvailableModel, backbone: Backbone, path: Path) -> Iterator[SetupProgress]:
    names, of = [source.name for source in offer.sources], len(offer.sources)
    yield SetupProgress("bank", 0, of, names[0])
    for index, _ in enumerate(import_bank(offer.sources, backbone, path, storage=READY_STORAGE), start=1):
        yield SetupProgress("bank", index, of, names[index] if index < of else "")


def _weights(backbone: Backbone) -> dict[str, Tensor]:
    return dict(backbone.visual.named_parameters())


def _offer(model: str) -> AvailableModel:
    known = {_plain(bank.model): bank for bank in PUBLIC_BANKS.values() if bank.checkpoints}
    public = known.get(_plain(model))
    return AvailableModel(model, "") if public is None else _public(public, model=model)


def _public(bank: PublicBank, *, model: str | None = None) -> AvailableModel:
    file = f"{bank.name}.safetensors"
    return AvailableModel(model or _plain(bank.model), bank.about, tuple(find_sources([bank.name])), file)


def _plain(model: str) -> str:
    """A model's short name: OpenAI's weights bring their own GELU, whether or not the name says so.

    >>> _plain("ViT-B-32-quickgelu/openai")
    'ViT-B-32/openai'
    """
    return model.replace("-quickgelu/openai", "/openai")
