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


def open_engine(model: str | None = None) -> Opened:
    """The chosen model (`model`, else ATLAS_MODEL), or the bundled one and why it is not the chosen one."""
    chosen = model or os.environ.get("ATLAS_MODEL") or BUNDLED
    try:
        return Opened(atlas.open(chosen))
    except atlas.AtlasError as error:
        if chosen == BUNDLED:
            raise
        return Opened(atlas.open(BUNDLED), reason=str(error))
