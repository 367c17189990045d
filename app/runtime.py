"""How the server's process uses memory."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

__all__ = [
    "available_memory",
    "keep_from_collector",
    "limit_malloc_arenas",
    "release_memory",
    "resident_memory",
]

M_ARENA_MAX = -8  # the option's number in glibc's malloc.h
MAX_ARENAS = 2


def limit_malloc_arenas() -> bool:
    """Ask the C library for few heaps; whether it obeyed, which only glibc can.

    Every thread that works may else be given a heap of its own, of some 60 MB, that is never handed back: a
    server whose pool of threads grows for hours would grow with it.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_ARENA_MAX, MAX_ARENAS))


def keep_from_collector() -> int:
    """Let the collector of cycles pass over everything that is there now; returns how many objects that are.

    Libraries, the model and the page are some 400,000 objects that stay as long as the process. To look
    through them holds up every thread for a part of a second, and each few hundred requests bring it about.
    """
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()


def release_memory() -> bool:
    """Hand memory that is free back to the system; whether the C library could, which only glibc can.

    The engine lets the C library keep what it frees, because the next step needs it again. After the last
    step of a run nobody does.
    """
    gc.collect()
    if not sys.platform.startswith("linux"):
        return False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))


def resident_memory() -> int | None:
    """Bytes of memory that this process holds; None where the system does not tell."""
    return _read_table("/proc/self/status").get("VmRSS")


def available_memory() -> int | None:
    """Bytes of memory that the machine, or the container, has left; None where the system does not tell."""
    machine = _read_table("/proc/meminfo").get("MemAvailable")
    limit, used = (_read_number(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    container = None if limit is None or used is None else max(limit - used, 0)
    known = [one for one in (machine, container) if one is not None]
    return min(known, default=None)


def _read_table(path: str) -> dict[str, int]:
    """The `Name: 123 kB` lines of a Linux status file, in bytes; empty on other systems."""
    try:
        rows = [line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    except OSError:
        return {}
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"}


def _read_number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # it may say `max`
        return None
