"""How the server's process uses memory."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["limit_malloc_arenas"]

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
