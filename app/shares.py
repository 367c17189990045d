"""Classifiers that visitors share: recipes that this server keeps for some days, under secret names.

    shares = Shares(folder)
    name = shares.keep(recipe)             # "q7d0…", to be put into a link
    shares.load(name)                      # the recipe, for whoever has the link

A recipe holds class names and what was learned, never an image. The folder has a quota: where it is full, no
more are taken until old ones have gone. Several processes may use one folder.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atlas_engine as atlas
from app import text
from app.limits import LIMITS

__all__ = ["VARIABLE", "Shares", "default_folder"]

VARIABLE = "ATLAS_SHARES"
ENDING = ".atlas.safetensors"
NAME = re.compile(r"[A-Za-z0-9_-]{16}")
DAY_SECONDS = 86400


def default_folder() -> Path:
    """The folder that ATLAS_SHARES names, or one beside the visitors' files, which a server sweeps sooner.

    `app.storage` names the private folder that holds those of all servers; each has its own inside of it.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("ATLAS_VISITORS") or tempfile.gettempdir()) / "atlas-shares"


class Shares:
    """A folder of recipes by name, each for `keep_days`, within a quota of files and of bytes."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        keep_days: float = LIMITS.share_days,
        max_files: int = LIMITS.shares,
        max_nbytes: int = LIMITS.share_megabytes << 20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = default_folder() if folder is None else folder
        self._keep_seconds = keep_days * DAY_SECONDS
        self._max_files, self._max_nbytes, self._clock = max_files, max_nbytes, clock

    def keep(self, recipe: atlas.Recipe) -> str:
        """The name under which the recipe can be had from now on; an AtlasError where there is no room."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.sweep()
        name = secrets.token_urlsafe(12)
        path = self._path(name)
        recipe.save(path)
        files = list(self._files())
        if len(files) > self._max_files or sum(_nbytes(file) for file in files) > self._max_nbytes:
            path.unlink(missing_ok=True)
            raise atlas.AtlasError(text.share.FULL)
        return name

    def load(self, name: str) -> atlas.Recipe:
        """The recipe of that name; an AtlasError where there is none, or its days are over."""
        if not NAME.fullmatch(name):
            raise atlas.AtlasError(text.share.GONE)
        self.sweep()
        if not self._path(name).is_file():
            raise atlas.AtlasError(text.share.GONE)
        return atlas.Recipe.load(self._path(name))

    def sweep(self) -> None:
        """Delete the recipes whose days are over."""
        oldest = self._clock() - self._keep_seconds
        for file in self._files():
            with suppress(FileNotFoundError):  # another process may sweep in this moment
                if file.stat().st_mtime < oldest:
                    file.unlink()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{ENDING}"

    def _files(self) -> list[Path]:
        return list(self.folder.glob(f"*{ENDING}")) if self.folder.is_dir() else []


def _nbytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
