"""Both products of stored task vectors as loops that numba turns into machine code. Knows nothing of torch.

    combine   into[r, i] = start[i] + Σ_t w[r, t] · scale[t, i // group] · data[t, i]
    inner     sums[k, r, t] = Σ_i g[r, i] · scale[t, i // group] · data[t, i]      over the i of block k

A CPU sums in float32 whatever the bank stores. Widening the numbers into memory and reading them again takes
longer than fetching them did; here they are widened in registers on their way into the sum. Threads call one
loop together and draw its blocks from a counter, so that a thread that is late takes fewer; each block has
its own place for sums, so who took it does not show. Loops see addresses: `native` knows that they are right.

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

__all__ = ["LANES", "STORAGES", "compiled", "has_float16"]

LANES = 32
"""Numbers per step: of float16 just one cache line, so no line is fetched twice."""

_ABREAST = 8
"""Task vectors read side by side. They lie a round number of bytes apart, so their lines share a place in the
cache, and it has room for eight."""

STORAGES = {  # numbers and scales; numba has no float16, bfloat16 or int4 on a CPU, others stand for them
    "float32": (types.float32, types.float32),
    "float16": (types.int16, types.float32),
    "bfloat16": (types.uint16, types.float32),
    "int8": (types.int8, types.float32),
    "int4": (types.uint8, types.uint16),
}

Pointer = Any
"""The address of the first of many numbers; of what type only numba knows."""

Function = TypeVar("Function", bound=Callable[..., Any])
_inlined: Callable[[Function], Function] = njit


def has_float16() -> bool:
    """Whether the processor widens float16 by an instruction; without one it takes ten times as long."""
    is_x86 = "x86" in binding.get_process_triple()
    return not is_x86 or bool(binding.get_host_cpu_features().get("f16c", False))


def compiled(product: str, *, storage: str) -> Callable[..., None]:
    """`combine` or `inner` for one storage: takes addresses and integers, and lets go of Python's lock."""
    data, scale = map(types.CPointer, STORAGES[storage])
    floats, counter = types.CPointer(types.float32), types.CPointer(types.int64)
    loop, integers = {"combine": (combine, 8), "inner": (inner, 7)}[product]
    signature = types.void(data, scale, floats, floats, floats, *[types.int64] * integers, counter)
    try:
        machine_code = cfunc(signature, cache=True)(loop)
    except RuntimeError:  # numba found no folder to keep the machine code in
        machine_code = cfunc(signature)(loop)
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    function = ctypes.CFUNCTYPE(None, *[pointer] * 5, *[integer] * integers, pointer)(machine_code.address)
    function.machine_code = machine_code  # type: ignore[attr-defined]  # lives as long as its address is used
    return function


def combine(  # noqa: PLR0917 machine code knows no keywords
    data: Pointer,  # (T n)
    scale: Pointer,  # (T n/group)
    w: Pointer,  # (R T)
    start: Pointer,  # (n)
    into: Pointer,  # (R n), its rows `stride` apart
    tasks: int,
    n: int,
    runs: int,
    stride: int,
    group: int,
    half: int,  # bytes per channel in int4, where each holds two numbers; otherwise 0
    block: int,
    past_cache: int,  # 1: write `into` past the cache, which spares fetching it first
    counter: Pointer,
) -> None:
    """into = start + Σ_t w[:, t] τ[t], for the blocks that this thread draws."""
    step = n if half == 0 else n // 2
    scales = n // group
    begin = _drawn(counter) * block
    while begin < n:
        end = min(begin + block, n)
        for r in range(runs):
            for first in range(0, tasks, _ABREAST):
                some = min(_ABREAST, tasks - first)
                summed = start if first == 0 else _shifted(into, r * stride)
                a = begin
                while a < end:
                    stop, at, high = _stretch(a, end, group, half)
                    _combine_stretch(
                        _shifted(data, first * step + at), step, high,
                        _shifted(scale, first * scales + a // group), scales,
                        _shifted(w, r * tasks + first), some,
                        _shifted(summed, a), _shifted(into, r * stride + a), stop - a,
                        past_cache != 0 and first + some == tasks,
                    )  # fmt: skip
                    a = stop
        begin = _drawn(counter) * block
    _fence()


def inner(  # noqa: PLR0917
    data: Pointer,  # (T n)
    scale: Pointer,  # (T n/group)
    g: Pointer,  # (R n), its rows `stride` apart
    room: Pointer,  # (blocks T LANES), for sums on their way
    sums: Pointer,  # (blocks R T)
    tasks: int,
    n: int,
    runs: int,
    stride: int,
    group: int,
    half: int,
    block: int,
    counter: Pointer,
) -> None:
    """⟨τ[t], g⟩ per block, for the blocks that this thread draws."""
    step = n if half == 0 else n // 2
    scales = n // group
    k = _drawn(counter)
    while k * block < n:
        end = min(k * block + block, n)
        lanes = _shifted(room, k * tasks * LANES)
        for r in range(runs):
            for t in range(tasks):
                _store(lanes, t * LANES, _all(types.float32(0)))
            for first in range(0, tasks, _ABREAST):
                some = min(_ABREAST, tasks - first)
                a = k * block
                while a < end:
                    stop, at, high = _stretch(a, end, group, half)
                    _inner_stretch(
                        _shifted(data, first * step + at), step, high,
                        _shifted(scale, first * scales + a // group), scales,
                        some, _shifted(g, r * stride + a), stop - a, _shifted(lanes, first * LANES),
                    )  # fmt: skip
                    a = stop
            for t in range(tasks):
                sums[(k * runs + r) * tasks + t] = _sum(_many(lanes, t * LANES, 0))
        k = _drawn(counter)


@_inlined
def _stretch(a: int, end: int, group: int, half: int) -> tuple[int, int, int]:
    """How far one scale and one run of stored numbers reach from a on; where they lie; in which half byte."""
    stop = min(end, a - a % group + group)
    if half == 0:
        return stop, a, 0
    part = a // half  # two parts per channel, packed over each other
    return min(stop, part * half + half), part // 2 * half + a % half, part % 2


@_inlined
def _combine_stretch(  # noqa: PLR0917
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
    past_cache: bool,
) -> None:
    whole = length // LANES * LANES
    for i in range(0, whole, LANES):
        total = _many(summed, i, 0)
        for t in range(tasks):
            c = w[t] * _one(scale, t * scales, 0)
            total = _plus_product(_many(data, t * step + i, high), _all(c), total)
        if past_cache:
            _stream(into, i, total)
        else:
            _store(into, i, total)
    for i in range(whole, length):
        number = summed[i]
        for t in range(tasks):
            number += w[t] * _one(scale, t * scales, 0) * _one(data, t * step + i, high)
        into[i] = number


@_inlined
def _inner_stretch(  # noqa: PLR0917
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
        seen = _many(g, i, 0)
        for t in range(tasks):
            tau = _product(_many(data, t * step + i, high), _all(_one(scale, t * scales, 0)))
            _store(lanes, t * LANES, _plus_product(tau, seen, _many(lanes, t * LANES, 0)))
    for i in range(whole, length):
        for t in range(tasks):
            tau_i = _one(data, t * step + i, high) * _one(scale, t * scales, 0)
            lanes[t * LANES + i - whole] += tau_i * g[i]


# What Python has no words for: LANES numbers at a time, and memory that threads share. Each function below
# writes the LLVM instructions of one call with a builder `b`, for values of numba's types `kinds`.

Ir = Any  # llvmlite and numba come without types

_FLOAT, _I8, _I16, _I32, _I64 = ir.FloatType(), *map(ir.IntType, (8, 16, 32, 64))
_KEPT = {
    types.float32: _FLOAT,
    types.int16: ir.HalfType(),
    types.uint16: _I16,
    types.int8: _I8,
    types.uint8: _I8,
}
_FUSED = ("contract",)  # product and sum may become one instruction; nothing else is reordered


class _LanesType(types.Type):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__("Lanes")


@register_model(_LanesType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Ir, kind: Ir) -> None:
        super().__init__(manager, kind, ir.VectorType(_FLOAT, LANES))


_LANES, _ANY, _FLOATS = _LanesType(), None, types.CPointer(types.float32)


def _instructions(*kinds: Ir, gives: Ir) -> Callable[[Callable[..., Ir]], Ir]:
    """Make a function for loops out of one that writes instructions; _ANY is a kind taken as it comes."""

    def made(write: Callable[..., Ir]) -> Ir:
        def typed(_: Ir, *given: Ir) -> Ir:
            own = [kind or taken for kind, taken in zip(kinds, given, strict=True)]

            def lowered(context: Ir, b: Ir, signature: Ir, values: Ir) -> Ir:
                written = write(b, signature.args, *values)
                return context.get_dummy_value() if gives is types.void else written

            return (gives or own[0])(*own), lowered

        first, _kinds, *values = inspect.signature(write).parameters.values()
        typed.__signature__ = inspect.Signature([first, *values])  # type: ignore[attr-defined]
        typed.__name__ = typed.__qualname__ = write.__name__
        return intrinsic(typed)

    return made


@_instructions(_ANY, types.int64, types.int64, gives=_LANES)
def _many(b: Ir, kinds: Ir, data: Ir, at: Ir, high: Ir) -> Ir:
    """LANES stored numbers from `at` on, widened; of int4 those in the high or the low halves of bytes."""
    return _widened(b, kinds[0].dtype, data, at, high, count=LANES)


@_instructions(_ANY, types.int64, types.int64, gives=types.float32)
def _one(b: Ir, kinds: Ir, data: Ir, at: Ir, high: Ir) -> Ir:
    return b.extract_element(_widened(b, kinds[0].dtype, data, at, high, count=1), _I32(0))


def _widened(b: Ir, kept: Ir, data: Ir, at: Ir, high: Ir, *, count: int) -> Ir:
    address = b.gep(b.bitcast(data, _KEPT[kept].as_pointer()), [at])
    stored = b.load(
        b.bitcast(address, ir.VectorType(_KEPT[kept], count).as_pointer()), align=kept.bitwidth // 8
    )
    floats, words = ir.VectorType(_FLOAT, count), ir.VectorType(_I32, count)
    if kept == types.float32:
        return stored
    if kept == types.int16:  # float16
        return b.fpext(stored, floats)
    if kept == types.uint16:  # a bfloat16 is the upper half of a float32
        return b.bitcast(b.shl(b.zext(stored, words), ir.Constant(words, [16] * count)), floats)
    if kept == types.int8:
        return b.sitofp(stored, floats)
    up = b.sub(
        _I32(28), b.shl(b.trunc(high, _I32), _I32(2))
    )  # the half byte to the top, and back with its sign
    on_top = b.shl(b.zext(stored, words), _spread(b, up, count))
    return b.sitofp(b.ashr(on_top, ir.Constant(words, [28] * count)), floats)


def _spread(b: Ir, number: Ir, count: int) -> Ir:
    blank = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
    zeros = ir.Constant(ir.VectorType(_I32, count), [0] * count)
    return b.shuffle_vector(b.insert_element(blank, number, _I32(0)), blank, zeros)


@_instructions(types.float32, gives=_LANES)
def _all(b: Ir, _: Ir, number: Ir) -> Ir:
    return _spread(b, number, LANES)


@_instructions(_LANES, _LANES, gives=_LANES)
def _product(b: Ir, _: Ir, x: Ir, y: Ir) -> Ir:
    return b.fmul(x, y)


@_instructions(_LANES, _LANES, _LANES, gives=_LANES)
def _plus_product(b: Ir, _: Ir, x: Ir, y: Ir, total: Ir) -> Ir:
    return b.fadd(b.fmul(x, y, flags=_FUSED), total, flags=_FUSED)


@_instructions(_LANES, gives=types.float32)
def _sum(b: Ir, _: Ir, x: Ir) -> Ir:
    count = LANES
    while count > 1:
        count //= 2
        low, high = (ir.Constant(ir.VectorType(_I32, count), [*range(a, a + count)]) for a in (0, count))
        x = b.fadd(b.shuffle_vector(x, x, low), b.shuffle_vector(x, x, high))
    return b.extract_element(x, _I32(0))


@_instructions(_FLOATS, types.int64, _LANES, gives=types.void)
def _store(b: Ir, _: Ir, into: Ir, at: Ir, x: Ir) -> Ir:
    return b.store(x, b.bitcast(b.gep(into, [at]), x.type.as_pointer()), align=4)


@_instructions(_FLOATS, types.int64, _LANES, gives=types.void)
def _stream(b: Ir, _: Ir, into: Ir, at: Ir, x: Ir) -> Ir:
    """Store past the cache, to an address that is a multiple of 64."""
    store = b.store(x, b.bitcast(b.gep(into, [at]), x.type.as_pointer()), align=64)
    return store.set_metadata("nontemporal", b.module.add_metadata([_I32(1)]))


@_instructions(_ANY, types.int64, gives=_ANY)
def _shifted(b: Ir, kinds: Ir, data: Ir, by: Ir) -> Ir:
    """The address of the number `by` places on."""
    numbers = b.bitcast(data, _KEPT[kinds[0].dtype].as_pointer())
    return b.bitcast(b.gep(numbers, [by]), data.type)


@_instructions(_ANY, gives=types.int64)
def _drawn(b: Ir, _: Ir, counter: Ir) -> Ir:
    """The counter's next number, which no other thread gets."""
    return b.atomic_rmw("add", counter, _I64(1), "monotonic")


@_instructions(gives=types.void)
def _fence(b: Ir, _: Ir) -> Ir:
    """Wait until all threads can see what was stored past the cache."""
    return b.fence("seq_cst")
