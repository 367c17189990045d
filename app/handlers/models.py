"""Choosing a model: the name is checked, the model fetched if need be, and then it answers this visitor."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import atlas_engine as atlas
from app import text
from app.limits import LIMITS, Limits
from app.runtime import available_memory
from app.session import Engines, StopSignal

__all__ = [
    "ChoiceProgress",
    "ModelFacts",
    "as_json",
    "check_room_for_model",
    "choose_model",
    "describe_model",
    "offered_models",
]

NAME = re.compile(r"[\w.+-]{1,80}/[\w.+-]{1,80}")  # ARCH/PRETRAINED; no path, no address


@dataclass(frozen=True)
class ChoiceProgress:
    """How far a choice is: what is being done, and at the end whether it was done or stopped."""

    doing: str
    share: float = 0.0
    done: bool = False
    stopped: bool = False

    @property
    def finished(self) -> bool:
        """Whether nothing more will come."""
        return self.done or self.stopped


@dataclass(frozen=True)
class ModelFacts:
    """The size of an open model, and the task vectors of its bank."""

    name: str
    millions: float
    pixels: int
    task_vectors: tuple[str, ...]
    storage: str
    residency: atlas.Residency | None = None  # where the vectors are; None without a bank


def offered_models(engines: Engines) -> list[str]:
    """The names to choose from without typing; the one that the server was started with comes first."""
    names = [offer.model for offer in atlas.available_models()]
    return list(dict.fromkeys([engines.first_name, *names]))


def choose_model(
    engines: Engines, session: str, name: str | None, *, stop_signal: StopSignal | None = None
) -> Iterator[ChoiceProgress]:
    """Make the model called `name` answer this visitor; the first state comes before any work.

    Raises an AtlasError when it cannot be had; the visitor's former model stays, as it does when stopped.
    """
    wanted = (name or "").strip()
    if wanted not in offered_models(engines) and (engines.offered_only or not NAME.fullmatch(wanted)):
        listed_only = text.server.not_in_list(wanted, offered_models(engines))
        raise atlas.AtlasError(listed_only if engines.offered_only else text.model.not_offered(wanted))
    yield ChoiceProgress(text.model.OPENING)
    engine = engines.find(wanted)
    if engine is None:
        for step in engines.prepare(wanted):
            engine = step.engine
            if stop_signal is not None and stop_signal.is_set:
                yield ChoiceProgress(text.model.STOPPED, stopped=True)
                return
            if step.phase == "fetch":
                check_room_for_model(step.nbytes)
                yield ChoiceProgress(text.model.fetching(step.nbytes))
            if step.phase == "bank":
                doing = text.model.building(step.index, step.of, step.vector)
                yield ChoiceProgress(doing, step.index / step.of)
    assert engine is not None  # the last step of a preparation has it
    engines.choose(session, wanted, engine)
    yield ChoiceProgress(text.model.ready(wanted), 1.0, done=True)


def check_room_for_model(nbytes: int, *, limits: Limits = LIMITS) -> None:
    """Refuse a model whose files are too large to be fetched for a visitor, or find no disk or memory.

    In memory a model takes about as much as its files: the weights once, and its bank.
    """
    if nbytes > limits.model_gigabytes * 1e9:
        raise atlas.AtlasError(text.server.large_model(nbytes / 1e9, limits.model_gigabytes))
    if shutil.disk_usage(Path.home()).free - nbytes < limits.free_megabytes << 20:
        raise atlas.AtlasError(text.server.no_room_for_model(nbytes / 1e9, "disk"))
    available = available_memory()
    if available is not None and nbytes > available:
        raise atlas.AtlasError(text.server.no_room_for_model(nbytes / 1e9, "memory"))


def describe_model(engine: atlas.Atlas, name: str) -> ModelFacts:
    """A model's size and its bank's task vectors, if it has a bank."""
    millions = sum(weight.numel() for weight in engine.backbone.visual.parameters()) / 1e6
    pixels = engine.backbone.preprocessing.size
    try:
        bank = engine.bank
        return ModelFacts(name, millions, pixels, bank.tasks, bank.storage, bank.residency())
    except atlas.AtlasError:  # there is none, or it cannot be read: Ask works all the same
        return ModelFacts(name, millions, pixels, (), "")


def as_json(facts: ModelFacts) -> dict[str, Any]:
    """The facts as plain JSON types, for programs."""
    return {
        "model": facts.name,
        "image_weights": round(facts.millions * 1e6),
        "pixels": facts.pixels,
        "task_vectors": list(facts.task_vectors),
    }
