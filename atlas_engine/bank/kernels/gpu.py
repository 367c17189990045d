"""Both products of stored task vectors on a GPU, by Triton kernels that widen numbers in registers.

    if gpu.can_run(stored, into):
        gpu.combine(stored, w, start=start, into=into)

torch would write every chunk of narrow numbers to memory in float32 and read it again. Triton compiles the
loops (`triton_loops`) at their first use and keeps them on disk. Before a storage format is used on a device
for the first time, `self_check` compares both products with float64 sums of torch. Where Triton is missing,
fails or answers wrongly, one warning is logged, `can_run` is False and panels compute with torch.

Sums are float32 and do not depend on which program ends first: `inner` writes one sum per program to a buffer
and then adds the buffer in a fixed order. Nothing here imports triton before it has met a tensor on a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from types import ModuleType

import torch
from torch import Tensor

from atlas_engine.bank.kernels.cpu import StoredNumbers

__all__ = ["STORAGES", "can_run", "combine", "combine_rows", "fault", "inner", "inner_rows", "self_check"]

STORAGES = ("float16", "bfloat16", "int8", "int4")
"""The formats that gain: torch multiplies float32 where it is, without widening it first."""

_DEVICE_TYPES = ("cuda",)
_MAX_NUMEL = 2**30
"""The kernels count the columns of one block in 32 bits."""

_RUNS_AT_ONCE = 8
_TILE_NUMEL, _MAX_ELEMENTS, _MIN_ELEMENTS = 4096, 2048, 32
"""Sums that a program keeps in registers, 32 for each of its 128 threads; the most and fewest columns among
them."""

_WARP_NUMEL = 256
"""Sums that keep a warp of 32 threads busy: a shorter row takes fewer than four warps."""

_ROUGH = 1e-5
"""float32 sums of the self-check's few thousand terms stay within 1e-6 of their terms' length; a wrong scale
or a half byte taken for its neighbour is off by 1e-2 and more."""

_CHECK_ROWS = 6

_log = logging.getLogger(__name__)
_check_lock = Lock()

Combine = Callable[..., None]
Inner = Callable[..., Tensor]


def can_run(stored: StoredNumbers, other: Tensor, *, rows: int = 1) -> bool:
    """Whether the products of `stored` with float32 `other` (R n) can be had on their device, by `rows`."""
    device = stored.data.device
    if device.type not in _DEVICE_TYPES or other.device != device or other.dtype != torch.float32:
        return False
    in_rows = stored.data.is_contiguous() and stored.scale.is_contiguous() and other.stride(-1) == 1
    fits = stored.storage in STORAGES and stored.numel < _MAX_NUMEL
    # in int4 a row is whole channels, so that its two halves are in the same bytes
    is_whole = rows == 1 or stored.numel // rows % (2 * stored.packed_width or 1) == 0
    return in_rows and fits and is_whole and fault(stored.storage, device) is None


def combine(stored: StoredNumbers, w: Tensor, *, start: Tensor, into: Tensor) -> None:
    """into (R n) = start (n) + Σ_t w[:, t] τ[t], for weights w (R T)."""
    combine_rows(stored, w.unsqueeze(1), start=start, into=into)


def combine_rows(stored: StoredNumbers, w: Tensor, *, start: Tensor, into: Tensor) -> None:
    """`combine` with weights w (R rows T): the n numbers are rows of equal length, each with its own."""
    weights, start = w.float().contiguous(), start.float().contiguous()
    _launch("combine", stored, (weights, start, into), runs=into, rows=w.shape[1])


def inner(stored: StoredNumbers, g: Tensor) -> Tensor:
    """⟨τ[t], g⟩ per run and task, (R n) -> (R T)."""
    return inner_rows(stored, g, rows=1)[:, 0]


def inner_rows(stored: StoredNumbers, g: Tensor, *, rows: int) -> Tensor:
    """`inner` per row: (R n) -> (R rows T), for n numbers in rows of equal length."""
    _, programs = _elements_and_programs(stored, runs=len(g), rows=rows)
    sums = g.new_empty(rows, programs * _halves(stored), len(g), stored.task_count)
    _launch("inner", stored, (g, sums), runs=g, rows=rows)
    return sums.sum(1).transpose(0, 1)


def fault(storage: str, device: torch.device) -> str | None:
    """What is wrong with the kernels of a format on a device, found once per process; None if they work."""
    with _check_lock:
        return _find_fault(storage, device)


def self_check(
    storage: str,
    device: torch.device,
    *,
    combine_rows: Combine = combine_rows,
    inner_rows: Inner = inner_rows,
) -> str | None:
    """What both products of small random panels get wrong, against float64 sums of torch; None if nothing.

    `combine_rows` and `inner_rows` are the kernels unless others are given.
    """
    stored, draw = _draw_numbers(storage, device), torch.Generator().manual_seed(1)
    tau, n, tasks = _widen(stored), stored.numel, stored.task_count
    for runs, rows in ((1, 1), (3, 1), (1, _CHECK_ROWS), (3, _CHECK_ROWS)):
        w, start, g = (
            torch.randn(*shape, generator=draw).to(device) for shape in ((runs, rows, tasks), (n,), (runs, n))
        )
        case, by_row = f"for {runs} run(s) and {rows} row(s)", tau.view(tasks, rows, -1)
        theta, again = torch.full((2, runs, n), torch.nan, device=device)
        combine_rows(stored, w, start=start, into=theta)
        combine_rows(stored, w, start=start, into=again)
        wanted = start + torch.einsum("rqt,tqc->rqc", w.double(), by_row).reshape(runs, n)
        if not torch.allclose(theta.double(), wanted, rtol=0, atol=_ROUGH * wanted.abs().max().item()):
            return f"combine is wrong {case}"
        sums, gradient = inner_rows(stored, g, rows=rows), g.double().view(runs, rows, -1)
        lengths = gradient.norm(dim=2)[..., None] * by_row.norm(dim=2).t()  # (R rows T)
        wanted = torch.einsum("rqc,tqc->rqt", gradient, by_row)
        if not torch.all((sums.double() - wanted).abs() <= _ROUGH * lengths):
            return f"inner is wrong {case}"
        if not (torch.equal(theta, again) and torch.equal(sums, inner_rows(stored, g, rows=rows))):
            return f"two calls give different bits {case}"
    return None


@lru_cache(maxsize=64)
def _find_fault(storage: str, device: torch.device) -> str | None:
    if _import_loops() is None:
        return "triton is not installed"
    try:
        found = self_check(storage, device, combine_rows=combine_rows, inner_rows=inner_rows)
    except Exception as error:  # a compiler for another machine can fail in any way, and torch can answer
        found = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    if found is not None:
        _log.warning("Triton's %s kernels are not used on %s, torch answers: %s", storage, device, found)
    return found


@lru_cache(maxsize=1)
def _import_loops() -> ModuleType | None:
    try:
        from atlas_engine.bank.kernels import triton_loops
    except ImportError as error:
        _log.warning("Triton cannot be imported, torch answers in its place: %s", error)
        return None
    return triton_loops


def _launch(
    product: str, stored: StoredNumbers, tensors: tuple[Tensor, ...], *, runs: Tensor, rows: int
) -> None:
    """Start the programs of one product for the runs (R n), on their device."""
    count, stored_count = len(runs), stored.data[0].numel()
    runs_at_once = _runs_at_once(count)
    elements, programs = _elements_and_programs(stored, runs=count, rows=rows)
    grid = (rows * programs, -(-count // runs_at_once))
    numbers = (stored.task_count, stored_count, stored_count // rows, programs)
    sizes = (stored.scale[0].numel(), count, runs.stride(0), stored.group, stored.packed_width or 1)
    with torch.cuda.device_of(runs):  # type: ignore[no-untyped-call]
        getattr(_import_loops(), product)[grid](
            stored.data,
            stored.scale,
            *tensors,
            *numbers,
            *sizes,
            HALVES=_halves(stored),
            RUNS=runs_at_once,
            ELEMENTS=elements,
            num_warps=max(1, min(4, runs_at_once * elements // _WARP_NUMEL)),
            enable_fp_fusion=True,  # product and sum become one instruction; Triton is about to stop doing so
        )


def _halves(stored: StoredNumbers) -> int:
    return 2 if stored.packed_width else 1


def _runs_at_once(runs: int) -> int:
    """The power of two that holds `runs`, up to _RUNS_AT_ONCE."""
    return min(1 << (runs - 1).bit_length(), _RUNS_AT_ONCE)


def _elements_and_programs(stored: StoredNumbers, *, runs: int, rows: int) -> tuple[int, int]:
    """How many stored elements of a task one program reads, a power of two, and how many programs a row has.

    As many as registers hold, unless more than an eighth of them would lie beyond the row's end.
    """
    row, size = stored.data[0].numel() // rows, min(_TILE_NUMEL // _runs_at_once(runs), _MAX_ELEMENTS)
    while size > _MIN_ELEMENTS and 8 * (-(-row // size) * size) > 9 * row:
        size //= 2
    return size, -(-row // size)


def _draw_numbers(storage: str, device: torch.device) -> StoredNumbers:
    """Random numbers for the self-check: three tasks, and channels that end within a program's elements."""
    # in int4 the second of three groups lies in both halves
    tasks, rows, cols, groups = 3, _CHECK_ROWS, 768, 3
    draw = torch.Generator().manual_seed(0)
    if storage in ("int8", "int4"):
        width = cols if storage == "int8" else cols // 2
        data = torch.randint(-128, 128, (tasks, rows, width), dtype=torch.int8, generator=draw)
        scale = torch.rand(tasks, rows, 1 if storage == "int8" else groups, generator=draw) + 0.5
        if storage == "int4":
            return StoredNumbers(data.to(device), scale.bfloat16().to(device), packed_width=width)
        return StoredNumbers(data.to(device), scale.to(device))
    data = torch.randn(tasks, rows * cols, generator=draw).to(getattr(torch, storage))
    return StoredNumbers(data.to(device), (torch.rand(tasks, generator=draw) + 0.5).to(device))


def _widen(stored: StoredNumbers) -> Tensor:
    """τ (T n) in float64."""
    data, tasks = stored.data, stored.task_count
    if stored.packed_width:
        data = torch.cat(((data << 4) >> 4, data >> 4), dim=2)
    scale = stored.scale.double().view(tasks, -1, 1)
    return (data.double().reshape(tasks, scale.shape[1], -1) * scale).view(tasks, -1)
