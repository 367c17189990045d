"""Both products of stored task vectors in machine code that widens numbers in registers.

Numba compiles the loops (`numba_loops`) at their first use, which takes about a second, and keeps them on
disk. Without numba, or without the processor's instruction for float16, `can_run` is False and panels compute
with torch instead: right to the same tolerance, and two to three times slower.
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

__all__ = [
    "MIN_ROW",
    "StoredNumbers",
    "can_run",
    "combine",
    "combine_rows",
    "has_numba",
    "inner",
    "inner_rows",
    "is_available",
]

_WORTH_NUMEL = 2**20
"""A smaller panel is in the cache after one step and would not earn back the loading of a compiler."""

MIN_ROW = 32
"""Rows shorter than this leave the lanes of a register empty: torch is as fast."""

_CHUNK = 2**14
"""Columns that a thread draws at a time: long enough to stream."""

_CHUNK_RUNS = 2**11
"""The same with several runs and one weight per task. It decides which numbers are rounded together: a change
would change the last bit of answers."""

_NONTEMPORAL_NUMEL = 2**18
"""From this length on, results would be out of the cache before they are read again: store them past it."""


@dataclass(frozen=True)
class StoredNumbers:
    """T × n numbers as they are in memory: number i of task t is data[t, i] · scale[t, i // group].

    In int4 a byte holds two numbers and `packed_width` bytes hold a channel: the low half of byte j is column
    j, the high half column j + packed_width. In other formats `packed_width` is 0.
    """

    data: Tensor
    scale: Tensor  # (T …), n / group scales per task
    packed_width: int = 0

    @property
    def task_count(self) -> int:
        """T."""
        return self.data.shape[0]

    @property
    def numel(self) -> int:
        """n."""
        return self.data[0].numel() * (2 if self.packed_width else 1)

    @property
    def group(self) -> int:
        """How many neighbours share a scale."""
        return self.numel // self.scale[0].numel()

    @property
    def storage(self) -> str:
        """The name of the format, a key of `numba_loops.STORAGES`."""
        return "int4" if self.packed_width else str(self.data.dtype).removeprefix("torch.")


def is_available(storage: str) -> bool:
    """Whether there is machine code for a storage format on this computer; the first call compiles it."""
    return _compiled("combine", storage) is not None


def can_run(stored: StoredNumbers, other: Tensor, *, min_numel: int = _WORTH_NUMEL) -> bool:
    """Whether the products of `stored` with float32 rows `other` (R n) can be had here and are worth it."""
    if stored.data.device.type != "cpu" or other.device.type != "cpu" or other.dtype != torch.float32:
        return False
    in_rows = stored.data.is_contiguous() and stored.scale.is_contiguous() and other.stride(-1) == 1
    return in_rows and stored.task_count * stored.numel >= min_numel and is_available(stored.storage)


def has_numba() -> bool:
    """Whether numba is here to compile the loops; compiles nothing."""
    return _import_loops() is not None


def combine(stored: StoredNumbers, w: Tensor, *, start: Tensor, into: Tensor) -> None:
    """into (R n) = start (n) + Σ_t w[:, t] τ[t], for weights w (R T)."""
    combine_rows(stored, w.unsqueeze(1), start=start, into=into)


def combine_rows(stored: StoredNumbers, w: Tensor, *, start: Tensor, into: Tensor) -> None:
    """`combine` with weights w (R rows T): the n numbers are rows of equal length, each with its own."""
    n, T, (runs, stride) = stored.numel, stored.task_count, (into.shape[0], into.stride(0))
    weights, start = w.float().contiguous(), start.float().contiguous()
    row = n // w.shape[1]
    sizes = (stride, row, stored.group, stored.packed_width)
    is_aligned = into.data_ptr() % 64 == 0 and all(size % 16 == 0 for size in sizes)
    nontemporal = int(is_aligned and n >= _NONTEMPORAL_NUMEL)
    chunk = _CHUNK_RUNS if runs > 1 and w.shape[1] == 1 else _CHUNK
    scratch = _scratch("combine", tasks=T, runs=runs)
    tensors = (stored.data, stored.scale, weights, start, into, scratch)
    numbers = (T, n, runs, stride, row, stored.group, stored.packed_width, chunk, _widens(stored, runs))
    threads = min(len(scratch), -(-n // chunk))
    _run_in_threads(_compiled("combine", stored.storage), tensors, (*numbers, nontemporal), threads=threads)


def inner(stored: StoredNumbers, g: Tensor) -> Tensor:
    """⟨τ[t], g⟩ per run and task, (R n) -> (R T)."""
    return _row_sums(stored, g, row=_CHUNK if g.shape[0] == 1 else _CHUNK_RUNS).sum(0)


def inner_rows(stored: StoredNumbers, g: Tensor, *, rows: int) -> Tensor:
    """`inner` per row: (R n) -> (R rows T), for n numbers in rows of equal length."""
    return _row_sums(stored, g, row=stored.numel // rows).transpose(0, 1)


def _row_sums(stored: StoredNumbers, g: Tensor, *, row: int) -> Tensor:
    """⟨τ[t], g⟩ over each `row` neighbours, (rows R T)."""
    n, T, (runs, stride) = stored.numel, stored.task_count, (g.shape[0], g.stride(0))
    chunk = max(1, _CHUNK // row) * row  # whole rows
    sums = torch.empty(-(-n // row), runs, T)
    scratch = _scratch("inner", tasks=T, runs=runs)
    tensors = (stored.data, stored.scale, g, sums, scratch)
    numbers = (T, n, runs, stride, row, stored.group, stored.packed_width, chunk, _widens(stored, runs))
    threads = min(len(scratch), -(-n // chunk))
    _run_in_threads(_compiled("inner", stored.storage), tensors, numbers, threads=threads)
    return sums


def _widens(stored: StoredNumbers, runs: int) -> int:
    """1 where several runs share numbers that take time to widen."""
    return int(runs > 1 and stored.storage != "float32")


def _scratch(product: str, *, tasks: int, runs: int) -> Tensor:
    """Memory for each thread that may take part: as many as torch uses."""
    loops = _import_loops()
    assert loops is not None
    return torch.empty(torch.get_num_threads(), loops.scratch_numel(product, tasks=tasks, runs=runs))


def _run_in_threads(
    loop: Callable[..., None] | None, tensors: tuple[Tensor, ...], numbers: tuple[int, ...], *, threads: int
) -> None:
    """Run one loop in so many threads, of which this thread is one."""
    assert loop is not None, "can_run() was not asked"
    counters = (ctypes.c_int64 * 2)()  # chunks drawn, threads at work
    args = (*(tensor.data_ptr() for tensor in tensors), *numbers, ctypes.addressof(counters))
    helpers: list[Future[None]] = []
    try:
        for _ in range(threads - 1):
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
def _compiled(product: str, storage: str) -> Callable[..., None] | None:
    loops = _import_loops()
    if loops is None or storage not in loops.STORAGES:
        return None
    if storage == "float16" and not loops.has_float16_instruction():
        return None
    function: Callable[..., None] = loops.compiled(product, storage=storage)
    return function


@lru_cache(maxsize=1)
def _import_loops() -> ModuleType | None:
    try:
        from atlas_engine.bank.kernels import numba_loops
    except ImportError:  # no numba, or one that does not go with this numpy
        return None
    return numba_loops
