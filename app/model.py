"""The engine that the server starts with, opened before the page is served. Knows nothing of Gradio.

It keeps nothing of what it is asked on the disk: pictures and class names are a visitor's own. What is slow
to make once, fetched models and banks built of them, stays there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import atlas_engine as atlas
from app import model_text as text

__all__ = ["BUNDLED", "Opened", "chosen_as", "open_engine"]

BUNDLED = "bundled"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opened:
    """An engine, and why it is not the one that was chosen, if it is not."""

    engine: atlas.Atlas
    reason: str | None = None
    own_bank: bool = True  # the one that ships with the model
    name: str = BUNDLED


def open_engine(
    model: str | None = None,
    *,
    bank: str | None = None,
    device: str | None = None,
    tell: Callable[[str], object] = _log.info,
) -> Opened:
    """The chosen model (`model`, else ATLAS_MODEL), or the bundled one and why it is not the chosen one.

    `bank` (else ATLAS_BANK) is a bank file for that model; without one it is the model's own, built from
    public checkpoints where there are some. `tell` hears how far that is.
    """
    chosen = model or os.environ.get("ATLAS_MODEL") or BUNDLED
    donors = bank or os.environ.get("ATLAS_BANK") or None
    shipped = chosen == BUNDLED and donors is None
    try:
        for step in atlas.prepare(chosen, bank=donors, device=device, cache=False):
            if step.phase == "bank":
                tell(text.building(step.index, step.of, step.vector))
    except atlas.AtlasError as error:
        if shipped:
            raise
        return Opened(atlas.open(BUNDLED, device=device, cache=False), reason=str(error))
    assert step.engine is not None  # the last step of a preparation has it
    return Opened(step.engine, own_bank=shipped, name=_shown(chosen))


def chosen_as(name: str) -> str:
    """What a visitor chooses a model by, from the name of its backbone: only the bundled one has its own.

    >>> chosen_as("ViT-B-32/openai"), chosen_as("efficientnet-lite0-minilm-l6")
    ('ViT-B-32/openai', 'bundled')
    """
    return name if "/" in name or "@" in name else BUNDLED


def _shown(model: str) -> str:
    """A model's name without the folder of its file, which is nobody's business.

    >>> _shown("ViT-B-32@weights/mine.pt")
    'ViT-B-32@mine.pt'
    """
    arch, at, path = model.partition("@")
    return arch + at + Path(path).name
