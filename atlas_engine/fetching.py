"""A model and its bank, made ready on this machine: found, or fetched and built once, and kept.

    for step in prepare("ViT-B-32/openai"):
        print(step.phase, step.index, step.of, step.vector)
    engine = step.engine                                 # the last step's; an open session

Where it has no bank of its own yet (`bank.finding`), the public checkpoints of that model become one
(`importing`), under the cache folder. Knows nothing of pages or visitors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from atlas_engine import runtime
from atlas_engine.atlas import Atlas
from atlas_engine.bank import fingerprint
from atlas_engine.bank.finding import banks_folder, find_bank
from atlas_engine.bank.store import BankFile
from atlas_engine.cache import Cache
from atlas_engine.clip.backbone import Backbone, open_backbone
from atlas_engine.clip.foreign.public import PUBLIC_BANKS, PublicBank
from atlas_engine.clip.foreign.sources import Source, find_sources
from atlas_engine.config import cache_folder
from atlas_engine.errors import BankError
from atlas_engine.importing import import_bank

__all__ = ["BUNDLED", "Offer", "Preparing", "offers", "prepare"]

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
    path = _fitting(Path(bank), backbone) if bank else find_bank(_weights(backbone))
    if path is None and offer.sources:
        path = banks_folder() / offer.file
        yield from _built(offer, backbone, path)
    store = Cache(cache_folder()) if cache is True else None if cache is False else cache
    yield Preparing("ready", engine=Atlas(backbone, bank_path=path, cache=store))


def _fitting(path: Path, backbone: Backbone) -> Path:
    """The file, if it is a bank of this model; better told now than after somebody has waited."""
    with BankFile(path) as file:
        if file.base != fingerprint(_weights(backbone)):
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


def _weights(backbone: Backbone) -> dict[str, Tensor]:
    return dict(backbone.visual.named_parameters())


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
