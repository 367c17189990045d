"""The storage formats of a bank, one row each, and how a block's task vectors are put into one.

    float32  float16  bfloat16  int8  int4  low-rank-R

A format applies to large weight matrices. Biases, norms and other small blocks stay dense in every format,
and so does a matrix too narrow for scales or factors to pay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.bank.blocks import Block, BlockTable
from atlas_engine.bank.packed import group_size, quantise, truncate_rank
from atlas_engine.bank.panels import TILE, BundlePanel, DensePanel, Panel, to_scaled_half
from atlas_engine.errors import BankError, unknown_name

__all__ = ["STORAGES", "StorageFormat", "assemble", "bundle_small_blocks", "find_storage", "vector_nbytes"]

SMALL = 16384
"""Blocks below this many numbers are bundled: streaming them would take less time than launching."""

MIN_CHANNEL = 32
"""The shortest output channel worth a scale of its own."""


@dataclass(frozen=True)
class StorageFormat:
    """One format: the dtype of a dense block, and the bits per number of a matrix (0 if it has a `rank`)."""

    name: str
    dense: torch.dtype
    bits: int
    rank: int = 0


STORAGES: dict[str, StorageFormat] = {
    row.name: row
    for row in (
        StorageFormat("float32", torch.float32, 32),
        StorageFormat("float16", torch.float16, 16),
        StorageFormat("bfloat16", torch.bfloat16, 16),
        StorageFormat("int8", torch.float16, 8),
        StorageFormat("int4", torch.float16, 4),
        StorageFormat("low-rank-64", torch.float16, 0, rank=64),
        StorageFormat("low-rank-16", torch.float16, 0, rank=16),
        StorageFormat("low-rank-4", torch.float16, 0, rank=4),
    )
}


def find_storage(name: str) -> StorageFormat:
    """The format called `name`; any rank can be asked for, as in `low-rank-8`."""
    if name in STORAGES:
        return STORAGES[name]
    found = re.fullmatch(r"low-rank-([1-9]\d{0,3})", name)
    if not found:
        raise BankError(unknown_name("storage", name, STORAGES))
    return StorageFormat(name, torch.float16, 0, rank=int(found[1]))


def assemble(
    blocks: BlockTable, storage: StorageFormat, *, vectors_of: Callable[[Block], Tensor], device: torch.device
) -> tuple[Panel, ...]:
    """All panels of a bank, made block by block. `vectors_of(block)` gives τ (T n)."""
    panels = (_encode(vectors_of(block).to(device), block, m, storage) for m, block in enumerate(blocks))
    return bundle_small_blocks(panels, blocks)


def bundle_small_blocks(panels: Iterable[Panel], blocks: BlockTable) -> tuple[Panel, ...]:
    """From one panel per block: the panels of large blocks in order, then a bundle of all small ones."""
    large: list[Panel] = []
    small: list[DensePanel] = []
    for panel in panels:
        if isinstance(panel, DensePanel) and blocks[panel.block_indices[0]].numel < SMALL:
            small.append(panel)
        else:
            large.append(panel)
    return (*large, BundlePanel.from_panels(small)) if small else tuple(large)


def vector_nbytes(blocks: BlockTable, storage: StorageFormat) -> int:
    """Bytes that one vector takes on its device in a format, exactly: what a memory budget counts with."""
    return sum(_block_nbytes(block, storage) for block in blocks)


def _encode(tau: Tensor, block: Block, block_index: int, storage: StorageFormat) -> Panel:
    """The task vectors τ (T n) of one block as a panel in this format."""
    tau = tau.float()
    if not _is_packed(block, storage):
        if storage.dense == torch.float16:
            return DensePanel((block_index,), *to_scaled_half(tau))
        return DensePanel((block_index,), tau.to(storage.dense))
    cols = block.numel // block.shape[0]
    if storage.rank:
        return truncate_rank(tau, block_index=block_index, cols=cols, rank=storage.rank)
    return quantise(tau, block_index=block_index, cols=cols, bits=storage.bits)


def _is_packed(block: Block, storage: StorageFormat) -> bool:
    """Whether the block is a matrix that the format narrows, and wide enough for that to pay."""
    if block.numel < SMALL or len(block.shape) < 2 or storage.bits >= 16:
        return False
    rows = block.shape[0]
    cols = block.numel // rows
    if storage.rank:
        return 2 * storage.rank * (rows + cols) < block.numel
    return cols >= MIN_CHANNEL and (storage.bits == 8 or cols % 2 == 0)


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
