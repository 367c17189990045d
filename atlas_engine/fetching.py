"""A model and its bank, made ready on this machine: found, or fetched and built once, and kept.

    for step in prepare("ViT-B-32/openai"):
        print(step.phase, step.index, step.of, step.vector)
    engine = step.engine                                 # the last step's; an open session

Which bank is a model's own is decided by the bank itself, which names the weights that it was taken from.
Where there is none, the public checkpoints of that model become one (`importing`), under the cache folder.
Knows nothing of pages or visitors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from atlas_engine import runtime
from atlas_engine.atlas import Atlas
from atlas_engine.bank import fingerprint
from atlas_engine.bank.store import BankFile
from atlas_engine.cache import Cache
from atlas_engine.clip.backbone import Backbone, open_backbone
from atlas_engine.clip.foreign.public import PUBLIC_BANKS, PublicBank
from atlas_engine.clip.foreign.sources import Source, find_sources
from atlas_engine.config import assets_folder, cache_folder
from atlas_engine.errors import BankError
from atlas_engine.importing import banks_folder, import_bank

__all__ = ["BUNDLED", "Offer", "Preparing", "find_bank", "offers", "prepare"]

BUNDLED = "bundled"
STORAGE = "int4"  # as the bank that ships: a quarter of float16 on disk and in memory


@dataclass(frozen=True)
class Offer:
    """A model that can be had with a bank: how it is named, and what its bank is made of."""

    model: str
    about: str
    sources: tuple[Source, ...] = ()
    file: str = ""  # of the bank that is built from them, below `banks_folder()`


@dataclass(frozen=True)
class Preparing:
    """How far it is: `model` while it is opened or fetched, `bank` while one is built, `ready` at the end."""

    phase: str
    index: int = 0
    of: int = 0
    vector: str = ""  # the one under way
    engine: Atlas | None = None


def offers() -> tuple[Offer, ...]:
    """The bundled model, and each that public checkpoints make a bank for."""
    fetchable = (_public(bank) for bank in PUBLIC_BANKS.values() if bank.checkpoints)
    return (Offer(BUNDLED, "ships with the project"), *fetchable)


def prepare(
    model: str | Offer,
    *,
    bank: Path | str | None = None,
    device: str | None = None,
    cache: Cache | bool = True,
) -> Iterator[Preparing]:
    """Open the model with `bank`, else with the bank that is its own; the last step has the session.

    A model that has none and for which nothing public is known opens without. A bank file appears whole or
    not at all, so whoever stops half way leaves nothing behind but checkpoints that need no second fetching.
    """
    offer = model if isinstance(model, Offer) else _offer(model)
    yield Preparing("model")
    runtime.keep_memory()
    backbone = open_backbone(offer.model, device=runtime.pick_device(device))
    path = _fitting(Path(bank), backbone) if bank else find_bank(backbone)
    if path is None and offer.sources:
        path = banks_folder() / offer.file
        yield from _built(offer, backbone, path)
    store = Cache(cache_folder()) if cache is True else None if cache is False else cache
    yield Preparing("ready", engine=Atlas(backbone, bank_path=path, cache=store))


def find_bank(backbone: Backbone) -> Path | None:
    """The bank on this machine that was made for this model: one that ships, else one that was built."""
    base = _fingerprint(backbone)
    for folder in (assets_folder() / "bank", banks_folder()):
        for path in sorted(folder.glob("*.safetensors")):
            if _base_of(path) == base:
                return path
    return None


def _fitting(path: Path, backbone: Backbone) -> Path:
    """The file, if it is a bank of this model; better told now than after somebody has waited."""
    with BankFile(path) as file:
        if file.base != _fingerprint(backbone):
            raise BankError(
                f"{path.name} was made for another model than {backbone.name}. Give a bank for this one, or "
                f"none to use its own; `atlas bank show FILE` names a bank's model."
            )
    return path


def _built(offer: Offer, backbone: Backbone, path: Path) -> Iterator[Preparing]:
    names, of = [source.name for source in offer.sources], len(offer.sources)
    yield Preparing("bank", 0, of, names[0])
    for index, _ in enumerate(import_bank(offer.sources, backbone, path, storage=STORAGE), start=1):
        yield Preparing("bank", index, of, names[index] if index < of else "")


def _fingerprint(backbone: Backbone) -> str:
    return fingerprint(dict(backbone.visual.named_parameters()))


def _offer(model: str) -> Offer:
    known = {_plain(bank.model): bank for bank in PUBLIC_BANKS.values() if bank.checkpoints}
    public = known.get(_plain(model))
    return Offer(model, "") if public is None else _public(public, model=model)


def _public(bank: PublicBank, *, model: str | None = None) -> Offer:
    file = f"{bank.name}.safetensors"
    return Offer(model or _plain(bank.model), bank.about, tuple(find_sources([bank.name])), file)


def _plain(model: str) -> str:
    """A model's short name: OpenAI's weights bring their own GELU, whether or not the name says so.

    >>> _plain("ViT-B-32-quickgelu/openai")
    'ViT-B-32/openai'
    """
    return model.replace("-quickgelu/openai", "/openai")


def _base_of(path: Path) -> str | None:
    """Which weights a bank file belongs to; None for a file that is no bank."""
    try:
        with BankFile(path) as file:
            return file.base
    except (BankError, OSError):
        return None
