"""Where recipes lie so that every replica can answer by them: a content-addressed folder, or a bucket.

    results = Results("s3://mine/atlas")             # or a folder; ATLAS_RESULTS, else one in the cache
    recipe_id = results.put(recipe.to_bytes())       # the sha256 of the bytes
    results.get(recipe_id)                           # the same bytes, checked against their id

A file's name is the hash of what it holds, so that nothing is ever overwritten, and a file that was damaged
or exchanged is found out. The store also carries the wish that a run ends to the replica which has that run:
`stop(run)` here, `is_stopped(run)` there.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path

import fsspec

import atlas_engine as atlas
from app import text
from app.limits import LIMITS

__all__ = ["VARIABLE", "NoResultError", "Results", "default_results", "id_of"]

VARIABLE = "ATLAS_RESULTS"
ID = re.compile(r"[0-9a-f]{64}")
RUN = re.compile(r"[0-9a-f]{32}")
DAY_SECONDS = 86400
SWEEP_SECONDS = 600.0


class NoResultError(atlas.AtlasError):
    """There is no result of that id, or none any more."""


def id_of(data: bytes) -> str:
    """The id of bytes: their sha256."""
    return hashlib.sha256(data).hexdigest()


def default_results() -> str:
    """The folder or bucket that ATLAS_RESULTS names, or a folder in the user's cache."""
    named = os.environ.get(VARIABLE)
    root = os.environ.get("ATLAS_CACHE") or str(Path.home() / ".cache" / "atlas-studio")
    return named or str(Path(root) / "results")


class Results:
    """Recipes by the hash of their bytes. Processes and machines may share one; a folder is swept by age.

    Of a bucket the owner sets how long it keeps files: its own rules do that better.
    """

    def __init__(self, address: str, *, keep_days: float = LIMITS.share_days) -> None:
        self.address = address
        self._files, self._root = fsspec.core.url_to_fs(address)
        self._is_folder = isinstance(self._files, fsspec.implementations.local.LocalFileSystem)
        self._keep_seconds, self._swept = keep_days * DAY_SECONDS, 0.0

    def put(self, data: bytes) -> str:
        """The id under which the bytes can be had from now on."""
        name = id_of(data)
        if not self._files.exists(self._path(name)):
            self._write(self._path(name), data)
        self._sweep()
        return name

    def get(self, name: str) -> bytes:
        """The bytes of that id; an AtlasError where there are none, or others."""
        if not ID.fullmatch(name):
            raise atlas.AtlasError(text.replicas.BAD_ID)
        try:
            data: bytes = self._files.cat_file(self._path(name))
        except FileNotFoundError:
            raise NoResultError(text.replicas.NO_RESULT) from None
        if id_of(data) != name:
            raise NoResultError(text.replicas.NO_RESULT)
        return data

    def stop(self, run: str) -> None:
        """Ask whoever has the run of that id to end it."""
        if RUN.fullmatch(run):
            self._write(f"{self._root}/stop-{run}", b".")

    def is_stopped(self, run: str) -> bool:
        """Whether somebody asked that."""
        return bool(RUN.fullmatch(run)) and bool(self._files.exists(f"{self._root}/stop-{run}"))

    def forget_run(self, run: str) -> None:
        """The run has ended: nobody need ask any more."""
        if RUN.fullmatch(run):
            with suppress(FileNotFoundError):
                self._files.rm_file(f"{self._root}/stop-{run}")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}.atlas.safetensors"

    def _write(self, path: str, data: bytes) -> None:
        """The whole file at once: by renaming in a folder; a bucket has it so of itself."""
        if not self._is_folder:
            self._files.pipe_file(path, data)
            return
        folder = Path(self._root)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = folder / f".{secrets.token_hex(8)}.part"
        try:
            part.write_bytes(data)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Delete what is older than it may be, now and then."""
        if not self._is_folder or time.monotonic() - self._swept < SWEEP_SECONDS:
            return
        self._swept, oldest = time.monotonic(), time.time() - self._keep_seconds
        for file in Path(self._root).iterdir():
            with suppress(OSError):  # another process may sweep in this moment
                if file.stat().st_mtime < oldest:
                    file.unlink()
