"""Models and their banks: import checkpoints as a bank, and open a model with the bank that fits it.

backbone = open_backbone("ViT-B-32-quickgelu/openai", device=torch.device("cpu"))
for vector in import_bank(find_sources(["tanganke-b32"]), backbone, "b32.safetensors", storage="int8"):
    print(vector.name, vector.norm)

for step in prepare("ViT-B-32/openai"):                 # finds its bank, or fetches and imports one
    print(step.phase, step.index, step.of, step.vector)
engine = step.engine                                    # of the last step: an open session
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
from atlas_engine.bank.storage import find_storage, vector_nbytes
from atlas_engine.bank.vector import LORA, STANDARD, check_kind, common_kind
from atlas_engine.cache import Cache
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.checkpoints.activation import activation_of, find_activation
from atlas_engine.clip.checkpoints.lora import holds_lora, read_lora
from atlas_engine.clip.checkpoints.public import PUBLIC_BANKS, PublicBank
from atlas_engine.clip.checkpoints.sidecar import reported_accuracies
from atlas_engine.clip.checkpoints.sources import (
    CheckpointSource,
    fetch_from_hub,
    find_sources,
    nbytes_to_fetch,
)
from atlas_engine.clip.checkpoints.tower import read_tower
from atlas_engine.clip.hub import OnBytes
from atlas_engine.clip.models import model_files_to_fetch, open_backbone
from atlas_engine.config import cache_folder
from atlas_engine.engine import Atlas
from atlas_engine.errors import BankError
from atlas_engine.files import human_nbytes
from atlas_engine.runtime import memory_report

__all__ = [
    "STORAGE",
    "AvailableModel",
    "ImportedVector",
    "SetupProgress",
    "available_models",
    "import_bank",
    "import_source",
    "prepare",
    "require_memory",
    "tower_weights",
]

STORAGE = "float16"  # of a bank that a user imports
READY_STORAGE = "int4"  # of a bank that `prepare` imports, as of the bank that ships: a quarter of float16
BUNDLED = "bundled"


# ---- Import: checkpoints become a bank file.


@dataclass(frozen=True)
class ImportedVector:
    """A task vector that was made from a checkpoint."""

    name: str
    source: str
    layout: str
    norm: float
    note: str = ""
    left_out: str = ""


def import_bank(
    sources: Sequence[CheckpointSource],
    backbone: Backbone,
    path: Path | str,
    *,
    storage: str = STORAGE,
    on_bytes: OnBytes | None = None,
    lora_alpha: float | None = None,
    kind: str | None = None,
) -> Iterator[ImportedVector]:
    """Make a task vector from each checkpoint, yield it, and write them all as one bank file at the end.

    A task vector is the checkpoint's image tower minus the backbone's. A source may also be a bank file of
    the same base: its vectors are taken as they are. Besides the stored vectors, one checkpoint is in memory
    at a time. The file is replaced as a whole: until then, and after any error, the old one stays. `on_bytes`
    is called as files arrive from the hub. The task vector of a LoRA adapter is (α / r) · B A; α is in the
    config beside it unless `lora_alpha` is given.

    `kind` says how checkpoints were trained, which no file tells: "linear" for those of the tower's tangent.
    By default LoRA adapters are of kind "lora" and all others "standard". Bank files tell their own.
    """
    if kind is not None:
        check_kind(kind)
    theta0 = tower_weights(backbone)
    require_memory(theta0, storage, len(sources))
    banks: list[TaskVectorBank] = []
    for source in sources:
        bank, vectors = import_source(
            source,
            theta0,
            backbone,
            storage=storage,
            on_bytes=on_bytes,
            lora_alpha=lora_alpha,
            kind=kind,
        )
        yield from vectors
        banks.append(bank)
        common_kind({made.tasks[0]: made.kind for made in banks})  # before more is fetched
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    save_bank(join_banks(banks), path)


def tower_weights(backbone: Backbone) -> dict[str, Tensor]:
    """The parameters of the image tower on the CPU, by their names: what vectors are differences to."""
    return {name: weights.detach().cpu() for name, weights in backbone.visual.named_parameters()}


def import_source(
    source: CheckpointSource,
    theta0: Mapping[str, Tensor],
    backbone: Backbone,
    *,
    storage: str,
    on_bytes: OnBytes | None = None,
    lora_alpha: float | None = None,
    kind: str | None = None,
) -> tuple[TaskVectorBank, list[ImportedVector]]:
    """The vectors of one source as a bank, and what is to be said of each. See `import_bank`."""
    file = fetch_from_hub(source.where, on_bytes=on_bytes) if source.is_remote else Path(source.where)
    if _is_bank(file):
        bank = _load_bank_of(file, theta0, backbone).stored_as(storage)
        return bank, [_imported(bank.vector(task), source, "bank") for task in bank.tasks]
    vector, layout = _read_vector(source, file, theta0, backbone, lora_alpha=lora_alpha, kind=kind)
    bank = TaskVectorBank.from_vectors([vector], storage=storage)
    return bank, [_imported(vector, source, layout)]


def require_memory(theta0: Mapping[str, Tensor], storage: str, count: int) -> None:
    """Raise at the start if the vectors will not fit in memory: joining holds them twice."""
    needed = 2 * count * vector_nbytes(block_table(theta0.items()), find_storage(storage))
    available = memory_report().available_nbytes
    if available is not None and needed > available:
        raise BankError(
            f"{count} vectors as {storage} need {human_nbytes(needed)} of memory and "
            f"{human_nbytes(available)} are free. "
            "Choose a narrower storage, as int8 or int4, or import fewer at a time."
        )


def _is_bank(file: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    if file.suffix != ".safetensors":
        return False
    try:
        with safe_open(file, framework="pt") as opened:
            return (opened.metadata() or {}).get("format") == BANK_FORMAT
    except (SafetensorError, OSError):
        return False  # reading it as a checkpoint will say what is wrong with it


def _load_bank_of(file: Path, theta0: Mapping[str, Tensor], backbone: Backbone) -> TaskVectorBank:
    bank, base = load_bank(file), fingerprint(theta0)
    if bank.base != base:
        raise BankError(
            f"{file.name} has vectors of another base ({bank.base[:12]}) than {backbone.name} ({base[:12]})."
            " Give the model that they were taken from."
        )
    return bank


def _read_vector(
    source: CheckpointSource,
    file: Path,
    theta0: Mapping[str, Tensor],
    backbone: Backbone,
    *,
    lora_alpha: float | None,
    kind: str | None,
) -> tuple[TaskVector, str]:
    """The task vector of a checkpoint, and the checkpoint's layout."""
    theirs, ours = find_activation(file), activation_of(backbone.visual)
    if theirs in ("gelu", "quick_gelu") and theirs != ours:
        raise BankError(
            f"'{source.where}' was tuned with {theirs}, but {backbone.name} computes {ours}: its features "
            "would differ. OpenAI's weights need a -quickgelu model, as in ViT-B-32-quickgelu/openai."
        )
    provenance = {"source": source.where if source.is_remote else file.name}
    if holds_lora(file):
        lora = read_lora(file, base=theta0, alpha=lora_alpha)
        tuned, layout = lora.weights, "lora"
        if lora.left_out:
            provenance["left out"] = f"{lora.left_out} tensors outside the image tower"
    else:
        tower = read_tower(file, shapes={name: tuple(weights.shape) for name, weights in theta0.items()})
        tuned, layout = tower.weights | {name: theta0[name] for name in tower.absent}, tower.layout
        if tower.absent:
            provenance["projection"] = "not in the checkpoint: the base's own, unchanged"
    provenance["layout"] = layout
    before, after = reported_accuracies(file)
    info = VectorInfo(
        dataset=source.name,
        accuracy_before=before,
        accuracy_after=after,
        provenance=provenance,
        kind=kind or (LORA if layout == "lora" else STANDARD),
    )
    return TaskVector.between(source.name, base=theta0, tuned=tuned, info=info), layout


def _imported(vector: TaskVector, source: CheckpointSource, layout: str) -> ImportedVector:
    note, left_out = (vector.info.provenance.get(key, "") for key in ("projection", "left out"))
    return ImportedVector(vector.name, source.where, layout, vector.norm(), note, left_out)


# ---- Prepare: a model with its bank, found on this machine or built once and kept.


@dataclass(frozen=True)
class AvailableModel:
    """A model that can be opened with a bank, and the checkpoints that the bank is imported from."""

    model: str
    about: str
    sources: tuple[CheckpointSource, ...] = ()
    file: str = ""  # name of the imported bank in `banks_folder()`


@dataclass(frozen=True)
class SetupProgress:
    """A step of `prepare`: the model is opened or fetched, its bank is imported, the session is ready."""

    phase: str  # "model", "fetch" if the hub has to send anything, "bank" or "ready"
    index: int = 0
    of: int = 0
    vector: str = ""  # the one that is imported next
    engine: Atlas | None = None
    nbytes: int = 0  # of "fetch": what the hub is about to send


def available_models() -> tuple[AvailableModel, ...]:
    """The bundled model, and every model that has public checkpoints."""
    public = (_from_public(bank) for bank in PUBLIC_BANKS.values() if bank.checkpoints)
    return (AvailableModel(BUNDLED, "ships with the project"), *public)


def prepare(
    model: str | AvailableModel,
    *,
    bank: Path | str | None = None,
    device: str | None = None,
    cache: Cache | bool = True,
    on_bytes: OnBytes | None = None,
) -> Iterator[SetupProgress]:
    """Open the model with `bank`, or else with its own bank; the last step has the session.

    Its own bank is found on this machine or imported from its public checkpoints. A model without public
    checkpoints opens without a bank. A bank file appears as a whole or not at all: a caller who stops half
    way leaves only fetched checkpoints, which are not fetched again. Before anything is fetched, a step says
    how much it is; `on_bytes` is called as it arrives.
    """
    available = model if isinstance(model, AvailableModel) else _find_model(model)
    yield SetupProgress("model")
    announced = _nbytes_with_model(available, bank)
    if announced:
        yield SetupProgress("fetch", nbytes=announced)
    runtime.keep_memory()
    backbone = open_backbone(available.model, device=runtime.pick_device(device), on_bytes=on_bytes)
    weights = dict(backbone.visual.named_parameters())
    path = _checked_bank(Path(bank), weights, backbone.name) if bank else find_bank(weights)
    if path is None and available.sources:
        path = banks_folder() / available.file
        if not announced and (nbytes := nbytes_to_fetch(available.sources)):
            yield SetupProgress("fetch", nbytes=nbytes)
        yield from _build_bank(available, backbone, path, on_bytes)
    store = Cache(cache_folder()) if cache is True else None if cache is False else cache
    yield SetupProgress("ready", engine=Atlas(backbone, bank_path=path, cache=store))


def _nbytes_with_model(available: AvailableModel, bank: Path | str | None) -> int:
    """Bytes that the hub has to send for the model and its bank; 0 if the model is on this machine.

    Without the model's weights its bank is known by the file's name alone.
    """
    model = sum(file.nbytes for file in model_files_to_fetch(available.model))
    has_bank = bank is not None or (banks_folder() / available.file).is_file()
    return model if has_bank or not model else model + nbytes_to_fetch(available.sources)


def _checked_bank(path: Path, weights: Mapping[str, Tensor], model: str) -> Path:
    """The path of a bank of this model; any other file raises now, before the user has waited for a run."""
    with BankFile(path) as file:
        if file.base != fingerprint(weights):
            raise BankError(
                f"{path.name} was made for another model than {model}. Give a bank for this one, or "
                f"none to use its own; `atlas bank show FILE` names a bank's model."
            )
    return path


def _build_bank(
    available: AvailableModel, backbone: Backbone, path: Path, on_bytes: OnBytes | None
) -> Iterator[SetupProgress]:
    names, of = [source.name for source in available.sources], len(available.sources)
    yield SetupProgress("bank", 0, of, names[0])
    vectors = import_bank(available.sources, backbone, path, storage=READY_STORAGE, on_bytes=on_bytes)
    for index, _ in enumerate(vectors, start=1):
        yield SetupProgress("bank", index, of, names[index] if index < of else "")


def _find_model(model: str) -> AvailableModel:
    """The model with its public checkpoints, or without any if none are known."""
    known = {_short_name(bank.model): bank for bank in PUBLIC_BANKS.values() if bank.checkpoints}
    public = known.get(_short_name(model))
    return AvailableModel(model, "") if public is None else _from_public(public, model=model)


def _from_public(bank: PublicBank, *, model: str | None = None) -> AvailableModel:
    sources = tuple(find_sources([bank.name]))
    return AvailableModel(
        model or _short_name(bank.model), bank.about, sources, file=f"{bank.name}.safetensors"
    )


def _short_name(model: str) -> str:
    """A model's name without -quickgelu, which OpenAI's weights imply.

    >>> _short_name("ViT-B-32-quickgelu/openai")
    'ViT-B-32/openai'
    """
    return model.replace("-quickgelu/openai", "/openai")
