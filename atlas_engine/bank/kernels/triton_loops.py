"""The loops of `gpu`, as Triton compiles them for a GPU or its interpreter runs them on a CPU.

    combine   into[r] = start + Σ_t w[r, row, t] τ[t]     for the columns and runs of a program
    inner     Σ_i τ[t, i] g[r, i]                         one sum per program, run and task, in its own place

A program has columns of one row, and so one weight per run and task; without rows of their own, all numbers
are one row. It reads the stored numbers of each task once, widens them in registers and sums in float32. In
int4 it holds bytes, and goes through them a second time, then in the cache, for their high halves. No two
programs write to one place, so nothing is added atomically and every call gives the same bits.

Triton reads annotations too, and knows only its own: an address is a `tl.tensor` as well.
`TRITON_INTERPRET=1` must be set before triton is imported for the interpreter to run them. Only `gpu` imports
this file, and only once it has met a tensor on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

__all__ = ["combine", "inner"]

_compiled: Callable[[Callable[..., Any]], Any] = triton.jit


@_compiled
def combine(  # noqa: PLR0917 Triton gives every argument a place
    data: tl.tensor,  # (T stored)
    scale: tl.tensor,  # (T scales)
    w: tl.tensor,  # (R rows T)
    start: tl.tensor,  # (n)
    into: tl.tensor,  # (R n), its rows `stride` apart
    tasks: int,
    stored: int,  # elements per task: n, or n / 2 in int4
    row: int,  # elements per row
    programs: int,  # per row
    scales: int,
    runs: int,
    stride: int,
    group: int,  # how many neighbours share a scale
    width: int,  # bytes per channel in int4; otherwise 1
    HALVES: tl.constexpr,  # numbers per element: 2 in int4, otherwise 1
    RUNS: tl.constexpr,
    ELEMENTS: tl.constexpr,
) -> None:
    """into = start + Σ_t w[:, row, t] τ[t], for the elements and runs of this program."""
    own_row = tl.program_id(0) // programs
    within = tl.program_id(0) % programs * ELEMENTS + tl.arange(0, ELEMENTS)
    place = own_row * row + within
    run = tl.program_id(1) * RUNS + tl.arange(0, RUNS)
    is_stored, is_run = within < row, run < runs
    for half in tl.static_range(HALVES):
        column = _column_of(place, half, width, HALVES)
        theta = tl.load(start + column, mask=is_stored, other=0.0)[None, :]
        theta = tl.broadcast_to(theta, (RUNS, ELEMENTS))
        number, factor = data + place, scale + column // group
        weight = w + (run * (stored // row) + own_row) * tasks
        for _ in range(tasks):
            tau = _widen(number, factor, is_stored, half, HALVES)
            theta += tl.load(weight, mask=is_run, other=0.0)[:, None] * tau[None, :]
            number += stored
            factor += scales
            weight += 1
        target = into + run.to(tl.int64)[:, None] * stride
        tl.store(target + column[None, :], theta, mask=is_run[:, None] & is_stored[None, :])


@_compiled
def inner(  # noqa: PLR0917
    data: tl.tensor,  # (T stored)
    scale: tl.tensor,  # (T scales)
    g: tl.tensor,  # (R n), its rows `stride` apart
    sums: tl.tensor,  # (rows · programs · HALVES, R T)
    tasks: int,
    stored: int,
    row: int,
    programs: int,
    scales: int,
    runs: int,
    stride: int,
    group: int,
    width: int,
    HALVES: tl.constexpr,
    RUNS: tl.constexpr,
    ELEMENTS: tl.constexpr,
) -> None:
    """⟨τ[t], g⟩ over the elements of this program, for its runs."""
    program = tl.program_id(0)
    within = program % programs * ELEMENTS + tl.arange(0, ELEMENTS)
    place = program // programs * row + within
    run = tl.program_id(1) * RUNS + tl.arange(0, RUNS)
    is_stored, is_run = within < row, run < runs
    for half in tl.static_range(HALVES):
        column = _column_of(place, half, width, HALVES)
        source = g + run.to(tl.int64)[:, None] * stride
        gradient = tl.load(source + column[None, :], mask=is_run[:, None] & is_stored[None, :], other=0.0)
        number, factor = data + place, scale + column // group
        total = sums + ((program.to(tl.int64) * HALVES + half) * runs + run) * tasks
        for _ in range(tasks):
            tau = _widen(number, factor, is_stored, half, HALVES)
            tl.store(total, tl.sum(gradient * tau[None, :], axis=1), mask=is_run)
            number += stored
            factor += scales
            total += 1


@_compiled
def _column_of(place: tl.tensor, half: int, width: int, HALVES: tl.constexpr) -> tl.tensor:
    """The column of each stored element; in int4 that of its low (0) or its high (1) half."""
    # a channel is `width` bytes and twice as many columns
    return place if HALVES == 1 else place + (place // width + half) * width


@_compiled
def _widen(
    number: tl.tensor, factor: tl.tensor, is_stored: tl.tensor, half: int, HALVES: tl.constexpr
) -> tl.tensor:
    """The stored numbers of one task as float32, times their scales."""
    tau = tl.load(number, mask=is_stored, other=0)
    if HALVES == 2:  # shift the half byte to the top of a word, and back down with its sign
        tau = (tau.to(tl.int32) << (28 - 4 * half)) >> 28
    return tau.to(tl.float32) * tl.load(factor, mask=is_stored, other=0).to(tl.float32)
