"""Choosing a model: checked, fetched if need be, and then it answers this visitor. Knows no Gradio."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import atlas_engine as atlas
from app import model_text as text
from app.engines import Engines
from app.state import StopSign

__all__ = ["Choosing", "ModelFacts", "as_row", "choose", "facts_of", "offered"]

NAME = re.compile(r"[\w.+-]{1,80}/[\w.+-]{1,80}")  # ARCH/PRETRAINED; no path, no address


@dataclass(frozen=True)
class Choosing:
    """How far a choice is: what is being done, and at the end that it is done."""

    doing: str
    share: float = 0.0
    done: bool = False


@dataclass(frozen=True)
class ModelFacts:
    """What there is to tell of a model that is open."""

    name: str
    millions: float
    pixels: int
    donors: tuple[str, ...]
    storage: str


def offered(engines: Engines) -> list[str]:
    """The names to choose from without typing; the one that the server was started with comes first."""
    names = [offer.model for offer in atlas.available_models()]
    return list(dict.fromkeys([engines.first_name, *names]))


def choose(
    engines: Engines, session: str, name: str | None, *, sign: StopSign | None = None
) -> Iterator[Choosing]:
    """Make the model called `name` answer this visitor; the first state comes before any work.

    Raises an AtlasError when it cannot be had; the visitor's former model stays, as it does when stopped.
    """
    wanted = (name or "").strip()
    if wanted not in offered(engines) and not NAME.fullmatch(wanted):
        raise atlas.AtlasError(text.not_here(wanted))
    yield Choosing(text.OPENING)
    engine = engines.find(wanted)
    if engine is None:
        for step in engines.prepare(wanted):
            engine = step.engine
            if sign is not None and sign.is_up:
                yield Choosing(text.STOPPED, done=True)
                return
            if step.phase == "bank":
                yield Choosing(text.building(step.index, step.of, step.vector), step.index / step.of)
    assert engine is not None  # the last step of a preparation has it
    engines.choose(session, wanted, engine)
    yield Choosing(text.ready(wanted), 1.0, done=True)


def facts_of(engine: atlas.Atlas, name: str) -> ModelFacts:
    """A model's size and its bank's donors, if it has a bank."""
    millions = sum(weight.numel() for weight in engine.backbone.visual.parameters()) / 1e6
    pixels = engine.backbone.preprocessing.size
    try:
        return ModelFacts(name, millions, pixels, engine.bank.tasks, engine.bank.storage)
    except atlas.AtlasError:  # there is none, or it cannot be read: Ask works all the same
        return ModelFacts(name, millions, pixels, (), "")


def as_row(facts: ModelFacts) -> dict[str, Any]:
    """The facts as plain JSON types, for programs."""
    return {
        "model": facts.name,
        "image_weights": round(facts.millions * 1e6),
        "pixels": facts.pixels,
        "donors": list(facts.donors),
    }
