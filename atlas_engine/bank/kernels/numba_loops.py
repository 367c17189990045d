"""Both products of stored task vectors as loops that numba turns into machine code.

    combine   into[r, i] = start[i] + Σ_t w[r, i // row, t] · scale[t, i // group] · data[t, i]
    inner     sums[k, r, t] = Σ_i g[r, i] · scale[t, i // group] · data[t, i]        over the i of row k

A CPU sums in float32 whatever the bank stores. Widening the numbers into memory and reading them again takes
longer than fetching them did; here they are widened in registers on their way into the sum. Several runs take
turns at a short segment, which is widened once for all of them and stays in the nearest cache. Threads run
one loop together and draw its chunks from a shared counter, so a late thread takes fewer. Each row has its
own place for sums, so the result does not depend on which thread took it. Loops get bare addresses: `cpu`
checks that they are right.

Plain `@njit` loops that give the same bits were tried in place of the LLVM instructions below. They are too
slow for the bars of `atlas bench engine`, in float16 and more so in int4.

One file, because numba's cache of compiled code looks at the time stamp of one file.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import binding, ir
from numba import cfunc, njit, types
from numba.extending import intrinsic, models, register_model

__all__ = ["LANES", "STORAGES", "compiled", "has_float16_instruction", "scratch_numel"]

LANES = 32
"""Numbers per step: of float16 just one cache line, so no line is fetched twice."""

_TASKS_AT_ONCE = 8
"""Task vectors read side by side. They are a round number of bytes apart, so their cache lines compete for
one set of the cache, which holds eight."""

_SEGMENT = 480
"""Columns that several runs take in turn, so that the later ones find them in the nearest cache. Not a power
of two, for the reason above."""

STORAGES = {  # numbers and scales; numba has no float16, bfloat16 or int4 on a CPU, others stand for them
    "float32": (types.float32, types.float32),
    "float16": (types.int16, types.float32),
    "bfloat16": (types.uint16, types.float32),
    "int8": (types.int8, types.float32),
    "int4": (types.uint8, types.uint16),
}

Pointer = Any
"""The address of an array's first number; only numba knows its type."""

Function = TypeVar("Function", bound=Callable[..., Any])
_inlined: Callable[[Function], Function] = njit


def has_float16_instruction() -> bool:
    """Whether the processor widens float16 by an instruction; without one it takes ten times as long."""
    is_x86 = "x86" in binding.get_process_triple()
    return not is_x86 or bool(binding.get_host_cpu_features().get("f16c", False))


def compiled(product: str, *, storage: str) -> Callable[..., None]:
    """`combine` or `inner` for one storage, as a function of addresses and integers that releases the GIL."""
    data, scale = map(types.CPointer, STORAGES[storage])
    floats, counters = types.CPointer(types.float32), types.CPointer(types.int64)
    loop, arrays, integers = {"combine": (combine, 4, 10), "inner": (inner, 3, 9)}[product]
    signature = types.void(data, scale, *[floats] * arrays, *[types.int64] * integers, counters)
    try:
        machine_code = cfunc(signature, cache=True)(loop)
    except RuntimeError:  # numba found no folder to keep the machine code in
        machine_code = cfunc(signature)(loop)
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    prototype = ctypes.CFUNCTYPE(None, *[pointer] * (2 + arrays), *[integer] * integers, pointer)
    function = prototype(machine_code.address)
    function.machine_code = machine_code  # type: ignore[attr-defined]  # lives as long as its address is used
    return function


def scratch_numel(product: str, *, tasks: int, runs: int) -> int:
    """How many float32 numbers of scratch a thread needs."""
    return _TASKS_AT_ONCE * _SEGMENT + (runs * tasks * LANES if product == "inner" else 0)


def combine(  # noqa: PLR0917 machine code knows no keywords
    data: Pointer,  # (T n)
    scale: Pointer,  # (T n/group)
    w: Pointer,  # (R n/row T)
    start: Pointer,  # (n)
    into: Pointer,  # (R n), its rows `stride` apart
    scratch: Pointer,  # (threads scratch_numel)
    tasks: int,
    n: int,
    runs: int,
    stride: int,
    row: int,  # so many neighbours share their weights
    group: int,
    packed_width: int,  # bytes per channel in int4, where each holds two numbers; otherwise 0
    chunk: int,
    widen: int,  # 1: widen a segment once, into scratch, for all runs
    nontemporal: int,  # 1: write `into` past the cache, which spares fetching it first
    counters: Pointer,  # (2): chunks drawn, threads at work
) -> None:
    """into = start + Σ_t w[:, i // row, t] τ[t], for the chunks that this thread draws."""
    step = n if packed_width == 0 else n // 2  # stored elements from one task to the next
    scales, rows = n // group, n // row
    longest = n if runs == 1 else _SEGMENT
    wide = _advance(scratch, _draw_next(_advance(counters, 1)) * _TASKS_AT_ONCE * _SEGMENT)
    begin = _draw_next(counters) * chunk
    while begin < n:
        end = min(begin + chunk, n)
        for first_task in range(0, tasks, _TASKS_AT_ONCE):
            count = min(_TASKS_AT_ONCE, tasks - first_task)
            past_cache = nontemporal != 0 and first_task + count == tasks
            a = begin
            while a < end:
                limit = min(end, a + longest, a - a % row + row)
                stop, place, high = _segment(a, limit, group, packed_width)
                stored = _advance(data, first_task * step + place)
                factors = _advance(scale, first_task * scales + a // group)
                if widen != 0:
                    _widen_segment(stored, step, high, count, wide, stop - a)
                for r in range(runs):
                    weights = _advance(w, (r * rows + a // row) * tasks + first_task)
                    target = _advance(into, r * stride + a)
                    summed = _advance(start, a) if first_task == 0 else target
                    if widen != 0:
                        _combine_segment(
                            wide, _SEGMENT, 0, factors, scales, weights, count,
                            summed, target, stop - a, past_cache,
                        )  # fmt: skip
                    else:
                        _combine_segment(
                            stored, step, high, factors, scales, weights, count,
                            summed, target, stop - a, past_cache,
                        )  # fmt: skip
                a = stop
        begin = _draw_next(counters) * chunk
    _fence()


def inner(  # noqa: PLR0917
    data: Pointer,  # (T n)
    scale: Pointer,  # (T n/group)
    g: Pointer,  # (R n), its rows `stride` apart
    sums: Pointer,  # (n/row R T)
    scratch: Pointer,  # (threads scratch_numel)
    tasks: int,
    n: int,
    runs: int,
    stride: int,
    row: int,  # so many neighbours are summed
    group: int,
    packed_width: int,
    chunk: int,  # whole rows
    widen: int,
    counters: Pointer,
) -> None:
    """⟨τ[t], g⟩ per row, for the chunks that this thread draws."""
    step = n if packed_width == 0 else n // 2  # stored elements from one task to the next
    scales = n // group
    longest = n if runs == 1 else _SEGMENT
    own = _draw_next(_advance(counters, 1)) * (_TASKS_AT_ONCE * _SEGMENT + runs * tasks * LANES)
    wide = _advance(scratch, own)
    lanes = _advance(wide, _TASKS_AT_ONCE * _SEGMENT)  # (R T LANES), sums on their way
    begin = _draw_next(counters) * chunk
    while begin < n:
        for first in range(begin, min(begin + chunk, n), row):
            end = min(first + row, n)
            for k in range(runs * tasks):
                _store(lanes, k * LANES, _broadcast(types.float32(0)))
            for first_task in range(0, tasks, _TASKS_AT_ONCE):
                count = min(_TASKS_AT_ONCE, tasks - first_task)
                a = first
                while a < end:
                    stop, place, high = _segment(a, min(end, a + longest), group, packed_width)
                    stored = _advance(data, first_task * step + place)
                    factors = _advance(scale, first_task * scales + a // group)
                    if widen != 0:
                        _widen_segment(stored, step, high, count, wide, stop - a)
                        _scale_segment(wide, factors, scales, count, stop - a)
                    for r in range(runs):
                        gradient = _advance(g, r * stride + a)
                        summed = _advance(lanes, (r * tasks + first_task) * LANES)
                        if widen != 0:
                            _inner_wide(wide, count, gradient, stop - a, summed)
                        else:
                            _inner_segment(
                                stored, step, high, factors, scales, count, gradient, stop - a, summed
                            )
                    a = stop
            for k in range(runs * tasks):
                sums[first // row * runs * tasks + k] = _sum_lanes(_load(lanes, k * LANES, 0))
        begin = _draw_next(counters) * chunk


@_inlined
def _segment(a: int, end: int, group: int, packed_width: int) -> tuple[int, int, int]:
    """The longest stretch from column `a` on that has one scale and is contiguous in storage.

    Gives the column where it stops, the place of its first number in storage, and in int4 whether it is in
    the high (1) or the low (0) halves of bytes.
    """
    stop = min(end, a - a % group + group)
    if packed_width == 0:
        return stop, a, 0
    part = a // packed_width  # a channel's two parts share the same bytes
    place = part // 2 * packed_width + a % packed_width
    return min(stop, part * packed_width + packed_width), place, part % 2


@_inlined
def _combine_segment(  # noqa: PLR0917
    data: Pointer,
    step: int,
    high: int,
    scale: Pointer,
    scales: int,
    w: Pointer,
    tasks: int,
    summed: Pointer,
    into: Pointer,
    length: int,
    nontemporal: bool,
) -> None:
    whole = length // LANES * LANES
    for i in range(0, whole, LANES):
        total = _load(summed, i, 0)
        for t in range(tasks):
            c = w[t] * _load_one(scale, t * scales, 0)
            total = _multiply_add(_load(data, t * step + i, high), _broadcast(c), total)
        if nontemporal:
            _store_nontemporal(into, i, total)
        else:
            _store(into, i, total)
    for i in range(whole, length):
        number = summed[i]
        for t in range(tasks):
            number += w[t] * _load_one(scale, t * scales, 0) * _load_one(data, t * step + i, high)
        into[i] = number


@_inlined
def _inner_segment(  # noqa: PLR0917
    data: Pointer,
    step: int,
    high: int,
    scale: Pointer,
    scales: int,
    tasks: int,
    g: Pointer,
    length: int,
    lanes: Pointer,
) -> None:
    whole = length // LANES * LANES
    for i in range(0, whole, LANES):
        gradient = _load(g, i, 0)
        for t in range(tasks):
            tau = _multiply(_load(data, t * step + i, high), _broadcast(_load_one(scale, t * scales, 0)))
            _store(lanes, t * LANES, _multiply_add(tau, gradient, _load(lanes, t * LANES, 0)))
    for i in range(whole, length):
        for t in range(tasks):
            tau_i = _load_one(data, t * step + i, high) * _load_one(scale, t * scales, 0)
            lanes[t * LANES + i - whole] += tau_i * g[i]


@_inlined
def _widen_segment(data: Pointer, step: int, high: int, tasks: int, wide: Pointer, length: int) -> None:  # noqa: PLR0917
    whole = length // LANES * LANES
    for t in range(tasks):
        for i in range(0, whole, LANES):
            _store(wide, t * _SEGMENT + i, _load(data, t * step + i, high))
        for i in range(whole, length):
            wide[t * _SEGMENT + i] = _load_one(data, t * step + i, high)


@_inlined
def _scale_segment(wide: Pointer, scale: Pointer, scales: int, tasks: int, length: int) -> None:
    whole = length // LANES * LANES
    for t in range(tasks):
        factor = _load_one(scale, t * scales, 0)
        for i in range(0, whole, LANES):
            at = t * _SEGMENT + i
            _store(wide, at, _multiply(_load(wide, at, 0), _broadcast(factor)))
        for i in range(whole, length):
            wide[t * _SEGMENT + i] *= factor


@_inlined
def _inner_wide(wide: Pointer, tasks: int, g: Pointer, length: int, lanes: Pointer) -> None:
    whole = length // LANES * LANES
    for t in range(tasks):
        total = _load(lanes, t * LANES, 0)
        for i in range(0, whole, LANES):
            total = _multiply_add(_load(wide, t * _SEGMENT + i, 0), _load(g, i, 0), total)
        _store(lanes, t * LANES, total)
        for i in range(whole, length):
            lanes[t * LANES + i - whole] += wide[t * _SEGMENT + i] * g[i]


# ---- Instructions that numba does not offer: LANES numbers at a time, and memory that threads share.
# Each function below writes the LLVM instructions of one call with a builder `b`, for values of numba's
# types `arg_types`.

Llvm = Any  # llvmlite and numba come without types

_FLOAT, _I8, _I16, _I32, _I64 = ir.FloatType(), *map(ir.IntType, (8, 16, 32, 64))
_LLVM_TYPES = {
    types.float32: _FLOAT,
    types.int16: ir.HalfType(),
    types.uint16: _I16,
    types.int8: _I8,
    types.uint8: _I8,
    types.int64: _I64,
}
_FUSED = ("contract",)  # product and sum may become one instruction; nothing else is reordered


class _LanesType(types.Type):  # type: ignore[misc]
    """numba's type of a register of LANES float32 numbers."""

    def __init__(self) -> None:
        super().__init__("Lanes")


@register_model(_LanesType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Llvm, frontend_type: Llvm) -> None:
        super().__init__(manager, frontend_type, ir.VectorType(_FLOAT, LANES))


_LANES, _ANY, _FLOATS = _LanesType(), None, types.CPointer(types.float32)


def _emits(*arg_types: Llvm, returns: Llvm) -> Callable[[Callable[..., Llvm]], Llvm]:
    """Decorator: make a function that writes instructions callable from loops. _ANY takes any type."""

    def decorate(write: Callable[..., Llvm]) -> Llvm:
        def type_call(_: Llvm, *given: Llvm) -> Llvm:
            own = [wanted or found for wanted, found in zip(arg_types, given, strict=True)]

            def lower(context: Llvm, b: Llvm, signature: Llvm, values: Llvm) -> Llvm:
                result = write(b, signature.args, *values)
                return context.get_dummy_value() if returns is types.void else result

            return (returns or own[0])(*own), lower

        # numba reads the number of arguments off the signature: a context, then the values
        builder, _, *values = inspect.signature(write).parameters.values()
        type_call.__signature__ = inspect.Signature([builder, *values])  # type: ignore[attr-defined]
        type_call.__name__ = type_call.__qualname__ = write.__name__
        return intrinsic(type_call)

    return decorate


@_emits(_ANY, types.int64, types.int64, returns=_LANES)
def _load(b: Llvm, arg_types: Llvm, data: Llvm, at: Llvm, high: Llvm) -> Llvm:
    """LANES stored numbers from `at` on, widened; of int4 those in the high or the low halves of bytes."""
    return _widen(b, arg_types[0].dtype, data, at, high, count=LANES)


@_emits(_ANY, types.int64, types.int64, returns=types.float32)
def _load_one(b: Llvm, arg_types: Llvm, data: Llvm, at: Llvm, high: Llvm) -> Llvm:
    return b.extract_element(_widen(b, arg_types[0].dtype, data, at, high, count=1), _I32(0))


def _widen(b: Llvm, stored_type: Llvm, data: Llvm, at: Llvm, high: Llvm, *, count: int) -> Llvm:
    """`count` stored numbers from `at` on, as float32."""
    element = _LLVM_TYPES[stored_type]
    address = b.gep(b.bitcast(data, element.as_pointer()), [at])
    vector = b.bitcast(address, ir.VectorType(element, count).as_pointer())
    stored = b.load(vector, align=stored_type.bitwidth // 8)
    floats, words = ir.VectorType(_FLOAT, count), ir.VectorType(_I32, count)
    if stored_type == types.float32:
        return stored
    if stored_type == types.int16:  # float16
        return b.fpext(stored, floats)
    if stored_type == types.uint16:  # a bfloat16 is the upper half of a float32
        return b.bitcast(b.shl(b.zext(stored, words), ir.Constant(words, [16] * count)), floats)
    if stored_type == types.int8:
        return b.sitofp(stored, floats)
    # int4: shift the half byte to the top of a word, and back down with its sign
    up = b.sub(_I32(28), b.shl(b.trunc(high, _I32), _I32(2)))
    on_top = b.shl(b.zext(stored, words), _repeat(b, up, count))
    return b.sitofp(b.ashr(on_top, ir.Constant(words, [28] * count)), floats)


def _repeat(b: Llvm, number: Llvm, count: int) -> Llvm:
    """A vector of `count` copies of one number."""
    blank = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    zeros = ir.Constant(ir.VectorType(_I32, count), [0] * count)
    return b.shuffle_vector(b.insert_element(blank, number, _I32(0)), blank, zeros)


@_emits(types.float32, returns=_LANES)
def _broadcast(b: Llvm, _: Llvm, number: Llvm) -> Llvm:
    return _repeat(b, number, LANES)


@_emits(_LANES, _LANES, returns=_LANES)
def _multiply(b: Llvm, _: Llvm, x: Llvm, y: Llvm) -> Llvm:
    return b.fmul(x, y)


@_emits(_LANES, _LANES, _LANES, returns=_LANES)
def _multiply_add(b: Llvm, _: Llvm, x: Llvm, y: Llvm, total: Llvm) -> Llvm:
    return b.fadd(b.fmul(x, y, flags=_FUSED), total, flags=_FUSED)


@_emits(_LANES, returns=types.float32)
def _sum_lanes(b: Llvm, _: Llvm, x: Llvm) -> Llvm:
    count = LANES
    while count > 1:
        count //= 2
        low, high = (ir.Constant(ir.VectorType(_I32, count), [*range(a, a + count)]) for a in (0, count))
        x = b.fadd(b.shuffle_vector(x, x, low), b.shuffle_vector(x, x, high))
    return b.extract_element(x, _I32(0))


@_emits(_FLOATS, types.int64, _LANES, returns=types.void)
def _store(b: Llvm, _: Llvm, into: Llvm, at: Llvm, x: Llvm) -> Llvm:
    return b.store(x, b.bitcast(b.gep(into, [at]), x.type.as_pointer()), align=4)


@_emits(_FLOATS, types.int64, _LANES, returns=types.void)
def _store_nontemporal(b: Llvm, _: Llvm, into: Llvm, at: Llvm, x: Llvm) -> Llvm:
    """Store past the cache, to an address that is a multiple of 64."""
    store = b.store(x, b.bitcast(b.gep(into, [at]), x.type.as_pointer()), align=64)
    return store.set_metadata("nontemporal", b.module.add_metadata([_I32(1)]))


@_emits(_ANY, types.int64, returns=_ANY)
def _advance(b: Llvm, arg_types: Llvm, data: Llvm, by: Llvm) -> Llvm:
    """The address of the number `by` places on."""
    numbers = b.bitcast(data, _LLVM_TYPES[arg_types[0].dtype].as_pointer())
    return b.bitcast(b.gep(numbers, [by]), data.type)


@_emits(_ANY, returns=types.int64)
def _draw_next(b: Llvm, _: Llvm, counter: Llvm) -> Llvm:
    """The counter's next number, which no other thread gets."""
    return b.atomic_rmw("add", counter, _I64(1), "monotonic")


@_emits(returns=types.void)
def _fence(b: Llvm, _: Llvm) -> Llvm:
    """Wait until all threads can see what was stored past the cache."""
    return b.fence("seq_cst")
