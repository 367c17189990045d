"""The coefficients λ: how they are laid out over tasks and blocks, and how they are read by name.

A layout says which coefficients are free and how they spread over the bank's T tasks × M blocks:

    per block      λ[t, m]           the default; (T, M)
    isotropic      λ[t]              one per vector; (T,)
    matrices       λ[t, m]           weight matrices only, the other blocks stay at the base; (T, M')
    × K            λ[t, m, k]        each block split at random into K partitions of its own; (T, M, K)

What is dealt out to the K partitions of a block: its numbers one by one (`split_by="entries"`, as in the
paper) or whole output rows (`split_by="rows"`). A row is contiguous, so each partition is a plain product and
× K costs about as much as K = 1 (`atlas bench partitions`); scattered entries cost many times that. A block
of fewer rows than K fills as many partitions as it has rows. A bias or norm has one number a row: both ways
split it alike.

`expand` takes the free tensor to λ over all blocks, (T, M) or (T, M, K); `reduce` is its transpose and takes
a gradient back. Both carry leading batch dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from atlas_engine.bank.blocks import Block, BlockTable
from atlas_engine.errors import BankError, ConfigError, unknown_name

__all__ = ["GRANULARITIES", "SPLITS", "Coefficients", "Layout"]

GRANULARITIES = ("block", "isotropic", "matrices")
SPLITS = ("entries", "rows")


@dataclass(frozen=True)
class Layout:
    """Which coefficients are free. `seed` draws the random split when `partitions` is above 1.

    `split_by` says what is dealt out to the partitions of a block: its numbers or its output rows.
    """

    granularity: str = "block"
    partitions: int = 1
    seed: int = 0
    split_by: str = "entries"

    def __post_init__(self) -> None:
        if self.granularity not in GRANULARITIES:
            raise ConfigError(unknown_name("granularity", self.granularity, GRANULARITIES))
        if self.split_by not in SPLITS:
            raise ConfigError(unknown_name("split_by", self.split_by, SPLITS))
        if self.partitions < 1:
            raise ConfigError(f"partitions={self.partitions} is out of range. It must be 1 or more.")
        if self.granularity == "isotropic" and self.partitions > 1:
            raise ConfigError(
                "an isotropic layout has one coefficient per vector. Pass partitions=1 or another layout."
            )

    def shape(self, tasks: int, blocks: BlockTable) -> tuple[int, ...]:
        """The shape of the free tensor for T tasks over these blocks: (T), (T, M), (T, M') or (T, M, K)."""
        if self.granularity == "isotropic":
            return (tasks,)
        width = len(blocks) if self.granularity == "block" else len(_matrix_indices(blocks))
        return (tasks, width) if self.partitions == 1 else (tasks, width, self.partitions)

    def initial(self, tasks: int, blocks: BlockTable, *, value: float = 0.0) -> Float[Tensor, "T ..."]:
        """A fresh free tensor; zero gives back the base model exactly."""
        return torch.full(self.shape(tasks, blocks), value, dtype=torch.float32)

    def expand(self, free: Float[Tensor, "*free"], blocks: BlockTable) -> Float[Tensor, "*full"]:
        """λ over all blocks, (…, T, M) or (…, T, M, K), from the free tensor."""
        if self.granularity == "isotropic":
            return free.unsqueeze(-1).expand(*free.shape, len(blocks))
        if self.granularity == "block":
            return free
        axis = -1 if self.partitions == 1 else -2
        kept = torch.tensor(_matrix_indices(blocks), device=free.device)
        shape = list(free.shape)
        shape[axis] = len(blocks)
        return free.new_zeros(shape).index_copy(axis, kept, free)

    def reduce(self, grad: Float[Tensor, "*full"], blocks: BlockTable) -> Float[Tensor, "*free"]:
        """∂L/∂free from ∂L/∂λ over all blocks: the transpose of `expand`."""
        if self.granularity == "isotropic":
            return grad.sum(-1)
        if self.granularity == "block":
            return grad
        axis = -1 if self.partitions == 1 else -2
        return grad.index_select(axis, torch.tensor(_matrix_indices(blocks), device=grad.device))

    def unit_count(self, block: Block) -> int:
        """How many units of a block are dealt out to its partitions: its numbers, or its output rows."""
        return block.rows if self.split_by == "rows" else block.numel

    def partition_of(self, block: Block) -> Int[Tensor, " n"]:
        """The partition, 0 … K − 1, of each number of a block."""
        units = self.unit_count(block)
        return self.split(units).repeat_interleave(block.numel // units)

    def split(self, units: int) -> Int[Tensor, " units"]:
        """The partition, 0 … K − 1, of each of a block's units: random, and as even as can be.

        The same seed and count give the same split. A block of fewer than K units fills the first partitions
        only; the coefficients of the empty ones do nothing.
        """
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + units)
        order = torch.randperm(units, generator=draw)
        return (torch.arange(units, dtype=torch.int32) % self.partitions)[order]


def _matrix_indices(blocks: BlockTable) -> list[int]:
    return [m for m, block in enumerate(blocks) if block.is_matrix]


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Learned coefficients with their labels: `coef["cars", "proj"]`, `coef["cars"]`, `coef.table`."""

    values: Float[Tensor, "T ..."]
    layout: Layout
    tasks: tuple[str, ...]
    blocks: BlockTable

    @classmethod
    def zeros(cls, tasks: Sequence[str], blocks: BlockTable, *, layout: Layout | None = None) -> Coefficients:
        """Coefficients at the start: the base model, exactly."""
        layout = layout or Layout()
        return cls(layout.initial(len(tasks), blocks), layout, tuple(tasks), blocks)

    @property
    def table(self) -> Float[Tensor, "T M *K"]:
        """λ over all tasks and blocks, (T, M) or (T, M, K)."""
        return self.layout.expand(self.values, self.blocks)

    def widened(self, blocks: BlockTable) -> Coefficients:
        """The same λ as coefficients per block of a larger table: zero at the blocks that these do not cover.

        A layout with fewer free coefficients is expanded first; K partitions stay K, with the same split.
        """
        new_index = [blocks.index(block) for block in self.blocks]
        for block, m in zip(self.blocks, new_index, strict=True):
            if blocks[m].shape != block.shape:
                raise BankError(
                    f"block '{block.name}' is {block.shape} here but {blocks[m].shape} in the table given. "
                    "Pass the table of the bank that these coefficients were learned on."
                )
        table = self.table
        zeros = table.new_zeros(len(self.tasks), len(blocks), *table.shape[2:])
        values = zeros.index_copy(1, torch.tensor(new_index, device=table.device), table)
        return Coefficients(values, replace(self.layout, granularity="block"), self.tasks, blocks)

    def narrowed(self, blocks: BlockTable) -> Coefficients:
        """The same λ as coefficients per block of a smaller table: those of its blocks alone."""
        kept = torch.tensor([self.blocks.index(block) for block in blocks], device=self.values.device)
        values = self.table.index_select(1, kept)
        return Coefficients(values, replace(self.layout, granularity="block"), self.tasks, blocks)

    def scaled(
        self, *, tasks: Mapping[str, float] | None = None, layers: Mapping[int, float] | None = None
    ) -> Coefficients:
        """New coefficients: λ times a factor for each task and layer named; 0 knocks one out.

            coefficients.scaled(tasks={"cars": 0}, layers={12: 0.5})        # Block.layer is 12

        Factors for layers make an isotropic layout one per block, as a layer then has a λ of its own.
        """
        if layers and self.layout.granularity == "isotropic":
            return self.widened(self.blocks).scaled(tasks=tasks, layers=layers)
        by_task = self.values.new_tensor(_task_factors(tasks or {}, self.tasks))
        if self.layout.granularity == "isotropic":
            return replace(self, values=self.values * by_task)
        by_block = self.values.new_tensor(_block_factors(layers or {}, self.blocks))
        factors = torch.outer(by_task, by_block)  # (T M)
        per_partition = factors if self.layout.partitions == 1 else factors.unsqueeze(-1)
        return replace(self, values=self.values * self.layout.reduce(per_partition, self.blocks))

    def __getitem__(self, key: str | tuple[str, str]) -> Float[Tensor, "*shape"]:
        task, block = key if isinstance(key, tuple) else (key, None)
        if task not in self.tasks:
            raise ConfigError(unknown_name("task", task, self.tasks))
        row = self.table[self.tasks.index(task)]
        return row if block is None else row[self.blocks.index(block)]


def _task_factors(factors: Mapping[str, float], tasks: Sequence[str]) -> list[float]:
    for task, factor in factors.items():
        if task not in tasks:
            raise ConfigError(unknown_name("task", task, tasks))
        _check_factor(f"task '{task}'", factor)
    return [factors.get(task, 1.0) for task in tasks]


def _block_factors(factors: Mapping[int, float], blocks: BlockTable) -> list[float]:
    layers = sorted({block.layer for block in blocks})
    for layer, factor in factors.items():
        if layer not in layers:
            raise ConfigError(f"layer {layer} is not known. Known: {', '.join(map(str, layers))}.")
        _check_factor(f"layer {layer}", factor)
    return [factors.get(block.layer, 1.0) for block in blocks]


def _check_factor(what: str, factor: float) -> None:
    if not math.isfinite(factor):
        raise ConfigError(f"the factor of {what} is {factor}. Pass a number; 0 knocks it out.")
