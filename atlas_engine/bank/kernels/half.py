"""The two products of a float16 panel on a CPU without numba, for one run.

A CPU has no float16 arithmetic: widening every number to float32 first takes three times as long as reading
it. Two kernels of torch widen in registers and sum in float32:

    combine   a weighted sum of table rows (`embedding_bag`, the fbgemm kernel of x86 builds)
    inner     a matrix–vector product of float16 numbers

Both take and give float16, so weights and gradients are brought to a safe range first, and the result is
right to float16's 11 bits, as the stored numbers are. In other cases panels are widened chunk by chunk.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["combine", "inner", "is_fast"]

_WIDTHS = (1024, 16384)
"""Table rows of this length keep T of them in a core's cache, and are long enough to stream."""

_CHUNK_NUMEL = 2**19
"""Few chunks, as each waits for all threads; small enough for the cache that the cores share."""


def is_fast(data: Tensor, other: Tensor) -> bool:
    """Whether `combine` and `inner` apply: float16 data against float32 on a CPU that has the kernels."""
    wanted = data.dtype == torch.float16 and other.dtype == torch.float32 and data.device.type == "cpu"
    return wanted and data.is_contiguous() and _width(data.shape[1]) > 0 and _has_kernels()


def combine(data: Tensor, w: Tensor, *, start: Tensor, into: Tensor) -> None:
    """into (n) = start (n) + Σ_t w[t] data[t], for data (T n)."""
    # cut every data[t] into rows of one table; a bag sums the T rows of the same columns
    tasks, n = data.shape
    width = _width(n)
    bags = max(1, _CHUNK_NUMEL // width)
    largest = w.abs().max().clamp_min(torch.finfo(torch.float32).tiny)  # keeps the weights within float16
    weights = (w / largest).half().repeat(bags)
    table = data.view(-1, width)
    index, offsets = _bag_index(tasks, n // width, min(bags, n // width))
    for chunk, rows in enumerate(index):
        count = rows.numel() // tasks
        own = weights[: rows.numel()]
        summed, *_ = torch.embedding_bag(table, rows, offsets[:count], per_sample_weights=own)
        at = slice(chunk * bags * width, (chunk * bags + count) * width)
        torch.add(start[at], summed.view(-1), alpha=largest.item(), out=into[at])


def inner(data: Tensor, g: Tensor) -> Tensor:
    """⟨data[t], g⟩ for every t, float32 (T), for data (T n) within ±1 and g (n)."""
    # Chunk by chunk, so that g comes from memory once. With |g| ≤ 1/16 the product over a chunk of 2^19 is at
    # most 2^15, which float16 can hold; what then falls below its range, 2^-20 of the peak, weighs nothing.
    total = torch.zeros(len(data))
    wide = torch.empty(min(len(g), _CHUNK_NUMEL))
    narrow = torch.empty(len(wide), dtype=torch.float16)
    for a in range(0, len(g), _CHUNK_NUMEL):
        chunk = g[a : a + _CHUNK_NUMEL]
        least, most = torch.aminmax(chunk)
        factor = 0.0625 / torch.maximum(-least, most).clamp_min_(torch.finfo(torch.float32).tiny)
        scaled = torch.mul(chunk, factor, out=wide[: len(chunk)])
        product = torch.mv(data[:, a : a + len(chunk)], narrow[: len(chunk)].copy_(scaled))
        total += product.float() / factor
    return total


@lru_cache(maxsize=256)
def _width(n: int) -> int:
    """The row length that cuts n evenly, nearest to 4096; 0 when there is none in range."""
    low, high = _WIDTHS
    divisors = [width for width in range(low, min(high, n) + 1) if n % width == 0]
    return min(divisors, key=lambda width: abs(math.log2(width / 4096)), default=0)


@lru_cache(maxsize=64)
def _bag_index(tasks: int, rows: int, bags: int) -> tuple[tuple[Tensor, ...], Tensor]:
    """Which table rows make each bag: row t · rows + i for every t, in chunks of `bags` bags."""
    index = (torch.arange(rows)[:, None] + torch.arange(tasks) * rows).int()  # (rows T)
    return tuple(chunk.reshape(-1) for chunk in torch.split(index, bags)), torch.arange(bags).mul(tasks).int()


@lru_cache(maxsize=1)
def _has_kernels() -> bool:
    return "fbgemm" in torch.backends.quantized.supported_engines
