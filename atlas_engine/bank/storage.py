"""The storage formats a bank can have, one row each, and how a block's vectors are put into one.

    float32  float16  bfloat16  int8  int4  low-rank-R

Not every block suits every format: biases, norms and other small blocks stay dense, and so does a matrix too
narrow for scales or factors to pay. Knows nothing of files or of how many vectors there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.bank.blocks import Block, BlockTable
from atlas_engine.bank.packed import group_size, quantise, truncate_rank
from atlas_engine.bank.panels import TILE, BundlePanel, DensePanel, Panel, Rows, to_scaled_half
from atlas_engine.errors import BankError, unknown_name

__all__ = [
    "SMALL",
    "STORAGES",
    "StorageFormat",
    "assemble",
    "bundle_small_blocks",
    "encode",
    "storage_named",
    "vector_nbytes",
]

SMALL = 16384
"""Blocks below this many numbers are bundled: streaming them would take less time than launching."""

MIN_CHANNEL = 32
"""The shortest output channel worth a scale of its own."""


@dataclass(frozen=True)
class StorageFormat:
    """One format: its name, what a dense block is kept as, and bits per number of a matrix (0 = by rank)."""

    name: str
    dense: torch.dtype
    bits: int
    rank: int = 0


STORAGES: dict[str, StorageFormat] = {
    "float32": StorageFormat("float32", torch.float32, 32),
    "float16": StorageFormat("float16", torch.float16, 16),
    "bfloat16": StorageFormat("bfloat16", torch.bfloat16, 16),
    "int8": StorageFormat("int8", torch.float16, 8),
    "int4": StorageFormat("int4", torch.float16, 4),
    "low-rank-64": StorageFormat("low-rank-64", torch.float16, 0, rank=64),
    "low-rank-16": StorageFormat("low-rank-16", torch.float16, 0, rank=16),
    "low-rank-4": StorageFormat("low-rank-4", torch.float16, 0, rank=4),
}


def storage_named(name: str) -> StorageFormat:
    """The format called `name`; any rank can be asked for, as in `low-rank-8`."""
    if name in STORAGES:
        return STORAGES[name]
    found = re.fullmatch(r"low-rank-([1-9]\d{0,3})", name)
    if not found:
        raise BankError(unknown_name("storage", name, STORAGES))
    return StorageFormat(name, torch.float16, 0, rank=int(found[1]))


def encode(tau: Tensor, block: Block, *, unit: int, storage: StorageFormat) -> Panel | Rows:
    """The vectors τ (T n) of one block, stored; `Rows` when it is to be bundled with other small blocks."""
    tau = tau.float()
    if block.numel < SMALL:
        return Rows(unit, *_dense(tau, storage))
    if _is_packed(block, storage):
        cols = block.numel // block.shape[0]
        if storage.rank:
            return truncate_rank(tau, unit=unit, cols=cols, rank=storage.rank)
        return quantise(tau, unit=unit, cols=cols, bits=storage.bits)
    return DensePanel((unit,), *_dense(tau, storage))


def assemble(
    blocks: BlockTable, storage: StorageFormat, *, vectors_of: Callable[[Block], Tensor], device: torch.device
) -> tuple[Panel, ...]:
    """All panels of a bank, one block at a time: `vectors_of(block)` gives τ (T n), then it is let go."""
    return bundle_small_blocks(
        encode(vectors_of(block).to(device), block, unit=m, storage=storage) for m, block in enumerate(blocks)
    )


def bundle_small_blocks(parts: Iterable[Panel | Rows]) -> tuple[Panel, ...]:
    """Panels in block order, with the small blocks bundled at the end."""
    panels: list[Panel] = []
    small: list[Rows] = []
    for part in parts:
        small.append(part) if isinstance(part, Rows) else panels.append(part)
    return (*panels, BundlePanel.of(small)) if small else tuple(panels)


def vector_nbytes(blocks: BlockTable, storage: StorageFormat) -> int:
    """Bytes that one vector takes on its device in a format, exactly: what a memory budget counts with."""
    return sum(_block_nbytes(block, storage) for block in blocks)


def _block_nbytes(block: Block, storage: StorageFormat) -> int:
    if not _is_packed(block, storage):
        padding = -block.numel % TILE if block.numel < SMALL else 0
        scale_nbytes = 4 if storage.dense == torch.float16 else 0
        return (block.numel + padding) * storage.dense.itemsize + scale_nbytes
    rows = block.shape[0]
    cols = block.numel // rows
    if storage.rank:
        return 4 * storage.rank * (rows + cols)
    if storage.bits == 8:
        return block.numel + 4 * rows
    return block.numel // 2 + 2 * block.numel // group_size(cols)


def _is_packed(block: Block, storage: StorageFormat) -> bool:
    """Whether the block is a matrix that the format narrows, and wide enough for that to pay."""
    if block.numel < SMALL or len(block.shape) < 2 or storage.bits >= 16:
        return False
    rows = block.shape[0]
    cols = block.numel // rows
    if storage.rank:
        return 2 * storage.rank * (rows + cols) < block.numel
    return cols >= MIN_CHANNEL and (storage.bits == 8 or cols % 2 == 0)


def _dense(tau: Tensor, storage: StorageFormat) -> tuple[Tensor, Tensor | None]:
    return to_scaled_half(tau) if storage.dense == torch.float16 else (tau.to(storage.dense), None)
