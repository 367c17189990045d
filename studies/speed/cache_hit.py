"""Suite `cache`: what the cache's checks cost on a hit."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from pathlib import Path

import safetensors.torch
import torch

from atlas_engine.cache import Cache
from atlas_engine.runtime import generator
from studies.speed.measure import compare
from studies.speed.report import Bar, Report

__all__ = ["cache_hit"]

EMBEDDING = 512
CALLS = 50  # one hit is tens of microseconds: too short to time alone


def cache_hit(*, repeat: int = 31) -> Report:
    """Time `Cache.get_tensor` against reading the same safetensors bytes from a bare SQLite table."""
    feature = torch.randn(EMBEDDING, generator=generator(0))
    with tempfile.TemporaryDirectory() as folder, Cache(Path(folder) / "cache") as cache:
        cache.put_tensor("key", feature)
        with contextlib.closing(sqlite3.connect(Path(folder) / "bare.db")) as bare:
            bare.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB)")
            bare.execute(
                "INSERT INTO entries VALUES (?, ?)", ("key", safetensors.torch.save({"tensor": feature}))
            )

            def hits() -> list[torch.Tensor | None]:
                return [cache.get_tensor("key") for _ in range(CALLS)]

            def bare_reads() -> list[torch.Tensor | None]:
                return [_bare_read(bare) for _ in range(CALLS)]

            times = compare(
                {"hit": hits, "bare": bare_reads},
                check=lambda found: all(value is not None and torch.equal(value, feature) for value in found),
                repeat=repeat,
            )
    hit, bare_read = times.timings["hit"], times.timings["bare"]
    return Report(
        name="cache",
        what=f"{CALLS} × get_tensor of {EMBEDDING} numbers, found on disk, in one process",
        ceiling="a bare sqlite3 SELECT by primary key and the same safetensors parse",
        bars=(
            Bar("hit / bare read", times.ratio("hit", "bare"), "<=", 4.0),
            Bar("one hit", hit.median_seconds / CALLS * 1e3, "<=", 1.0, "ms"),
        ),
        notes={"hits": str(hit), "bare reads": str(bare_read)},
    )


def _bare_read(connection: sqlite3.Connection) -> torch.Tensor:
    ((value,),) = connection.execute("SELECT value FROM entries WHERE key = ?", ("key",)).fetchall()
    tensor: torch.Tensor = safetensors.torch.load(value)["tensor"]
    return tensor
