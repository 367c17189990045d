"""Both products of a panel in machine code that widens numbers in registers. Knows nothing of banks.

The loops (`loops`) are compiled by numba at their first use, about a second, and kept on disk. Where numba or
the processor's instruction is missing `can_run` says no, and panels take the way through torch, which is right
to the same tolerance and two to three times slower.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

__all__ = ["StoredNumbers", "can_run", "combine", "inner", "is_available"]

_WORTH_NUMEL = 2**20
"""A smaller panel is in the cache after one step and would not earn back the loading of a compiler."""

_BLOCK_ONE_RUN, _BLOCK_RUNS = 2**14, 2**11
"""Columns per block: long enough to stream; with several runs, few enough to stay in a core's cache."""

_PAST_CACHE_NUMEL = 2**18
"""From this length on, what was written would be out of the cache anyway before it is read again."""


@dataclass(frozen=True)
class StoredNumbers:
    """T × n numbers as they lie in memory: number i of task t is data[t, i] · scale[t, i // group].

    Where `half` is not 0, a byte holds two int4 and that many bytes hold a channel: the low half of byte j is
    column j, the high half column j + half.
    """

    data: Tensor
    scale: Tensor  # (T …), n / group scales per task
    half: int = 0

    @property
    def tasks(self) -> int:
        """T."""
        return self.data.shape[0]

    @property
    def numel(self) -> int:
        """n."""
        return self.data[0].numel() * (2 if self.half else 1)

    @property
    def group(self) -> int:
        """How many neighbours share a scale."""
        return self.numel // self.scale[0].numel()

    @property
    def storage(self) -> str:
        """The name of the format."""
        return "int4" if self.half else str(self.data.dtype).removeprefix("torch.")


def is_available(storage: str) -> bool:
    """Whether there is machine code for a storage on this computer; compiles it at the first question."""
    return _loop("combine", storage) is not None


def can_run(stored: StoredNumbers, other: Tensor, *, least: int = _WORTH_NUMEL) -> bool:
    """Whether the products of `stored` with float32 rows `other` (R n) can be had here, and are worth it."""
    if stored.data.device.type != "cpu" or other.device.type != "cpu" or other.dtype != torch.float32:
        return False
    in_rows = stored.data.is_contiguous() and stored.scale.is_contiguous() and other.stride(-1) == 1
    return in_rows and stored.tasks * stored.numel >= least and is_available(stored.storage)


def combine(stored: StoredNumbers, w: Tensor, *, start: Tensor, into: Tensor) -> None:
    """into (R n) = start (n) + Σ_t w[:, t] τ[t], for weights w (R T)."""
    n, (runs, stride) = stored.numel, (into.shape[0], into.stride(0))
    weights, start = w.float().contiguous(), start.float().contiguous()
    even = into.data_ptr() % 64 == 0 and all(size % 16 == 0 for size in (stride, stored.group, stored.half))
    past_cache = int(even and n >= _PAST_CACHE_NUMEL)
    block = _block(runs)
    pointers = (stored.data, stored.scale, weights, start, into)
    numbers = (stored.tasks, n, runs, stride, stored.group, stored.half, block, past_cache)
    _together(_loop("combine", stored.storage), pointers, numbers, blocks=-(-n // block))


def inner(stored: StoredNumbers, g: Tensor) -> Tensor:
    """⟨τ[t], g⟩ per run and task, (R n) -> (R T)."""
    n, T, (runs, stride) = stored.numel, stored.tasks, (g.shape[0], g.stride(0))
    block = _block(runs)
    blocks = -(-n // block)
    room, sums = torch.empty(blocks, T, _lanes()), torch.empty(blocks, runs, T)
    numbers = (T, n, runs, stride, stored.group, stored.half, block)
    pointers = (stored.data, stored.scale, g, room, sums)
    _together(_loop("inner", stored.storage), pointers, numbers, blocks=blocks)
    return sums.sum(0)


def _block(runs: int) -> int:
    return _BLOCK_ONE_RUN if runs == 1 else _BLOCK_RUNS


def _together(
    loop: Callable[..., None] | None, tensors: tuple[Tensor, ...], numbers: tuple[int, ...], *, blocks: int
) -> None:
    """Run one loop in as many threads as torch uses; this thread is one of them."""
    assert loop is not None, "serves() was not asked"
    counter = ctypes.c_int64(0)
    args = (*(tensor.data_ptr() for tensor in tensors), *numbers, ctypes.addressof(counter))
    helpers: list[Future[None]] = []
    try:
        for _ in range(min(torch.get_num_threads(), blocks) - 1):
            helpers.append(_pool().submit(loop, *args))
        loop(*args)
    finally:  # nobody may touch the tensors once this returns
        wait([helper for helper in helpers if not helper.cancel()])


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="bank")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)


@lru_cache(maxsize=32)
def _loop(product: str, storage: str) -> Callable[..., None] | None:
    loops = _loops()
    if loops is None or storage not in loops.STORAGES or (storage == "float16" and not loops.has_float16()):
        return None
    function: Callable[..., None] = loops.compiled(product, storage=storage)
    return function


@lru_cache(maxsize=1)
def _loops() -> ModuleType | None:
    try:
        from atlas_engine.bank.kernels import numba_loops
    except ImportError:  # no numba, or one that does not go with this numpy
        return None
    return numba_loops


def _lanes() -> int:
    loops = _loops()
    assert loops is not None
    lanes: int = loops.LANES
    return lanes
