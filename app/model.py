"""The engine that answers, opened once before the page is served. Knows nothing of Gradio."""

from __future__ import annotations

import os
from dataclasses import dataclass

import atlas_engine as atlas

__all__ = ["BUNDLED", "Opened", "open_engine"]

BUNDLED = "bundled"


@dataclass(frozen=True)
class Opened:
    """An engine, and why it is not the one that was chosen, if it is not."""

    engine: atlas.Atlas
    reason: str | None = None
    own_bank: bool = True  # the one that ships with the model


def open_engine(model: str | None = None, *, bank: str | None = None) -> Opened:
    """The chosen model (`model`, else ATLAS_MODEL), or the bundled one and why it is not the chosen one.

    `bank` (else ATLAS_BANK) is a bank file for that model; without one it is the model's own.
    """
    chosen = model or os.environ.get("ATLAS_MODEL") or BUNDLED
    donors = bank or os.environ.get("ATLAS_BANK") or None
    try:
        return Opened(atlas.open(chosen, bank=donors), own_bank=chosen == BUNDLED and donors is None)
    except atlas.AtlasError as error:
        if chosen == BUNDLED:
            raise
        return Opened(atlas.open(BUNDLED), reason=str(error))
