"""Panels: the task vectors of a bank, block by block, and the two products of them that a step needs.

A panel holds the T × n matrix τ of one block (or of many small blocks together) in one storage format:

    combine   into = start + Σ_t w[t] τ[t]         (R T) @ (T n) -> (R n)
    inner     ⟨τ[t], g⟩ for every t                (R n) @ (n T) -> (R T)

All R runs are computed together, so a panel is read once each way whatever R is. Sums are kept in the dtype
of `into` and `g` (float32; float64 in a finite-difference test). Narrower storage is widened in registers
(`kernels.cpu` with numba, `kernels.gpu` with Triton) or chunk by chunk in a scratch that stays in cache,
never as a whole. No product waits for the device, except that `kernels.gpu` checks itself at its first use.
No sum depends on the order in which threads end: the same call gives the same bits on a CPU and on CUDA.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor
from typing_extensions import override

from atlas_engine.bank.kernels import cpu, gpu, half

__all__ = ["TILE", "BundlePanel", "DensePanel", "Panel", "sum_by_index", "to_scaled_half"]

TILE = 256
"""Small blocks are cut into tiles of this many numbers, each belonging to one block."""

_SCRATCH_NUMEL = {"cpu": 2**18}
_SCRATCH_NUMEL_GPU = 2**24  # few launches matter more than cache on a GPU

_FIXED_BITS, _MAX_EXPONENT = 38, 126
"""Bits of the largest number where numbers are added as integers; the largest power of two of float32."""


class Panel(ABC):
    """The task vectors of U blocks in one storage format. `block_indices` are their places in the table."""

    block_indices: tuple[int, ...]

    @property
    @abstractmethod
    def task_count(self) -> int:
        """T."""

    @property
    @abstractmethod
    def numel(self) -> int:
        """n, the numbers per task, padding included."""

    @property
    def alignment(self) -> int:
        """Chunks start and stop at multiples of this many numbers."""
        return 1

    @abstractmethod
    def tensors(self) -> Mapping[str, Tensor]:
        """What the panel stores; every tensor has T as its first dimension."""

    @abstractmethod
    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Panel:
        """The same panel over other tensors: moved to a device, or of other tasks."""

    @abstractmethod
    def read_into(self, out: Tensor, start: int) -> Tensor:
        """τ[:, start:start + s] for `out` (T s), in its dtype: written there, or a view of the storage."""

    def decode(self, start: int, stop: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """τ[:, start:stop] in `dtype`, (T, stop − start)."""
        return self.read_into(
            torch.empty(self.task_count, stop - start, dtype=dtype, device=self.device), start
        )

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return next(iter(self.tensors().values())).device

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, scales included."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors().values())

    def offsets(self) -> tuple[int, ...]:
        """Where the numbers of each of the U blocks begin."""
        return (0,)

    def split(self) -> Sequence[Panel]:
        """One panel per block, over the same memory."""
        return (self,)

    def to(self, device: torch.device | str) -> Panel:
        """The panel on another device."""
        return self.with_tensors({key: tensor.to(device) for key, tensor in self.tensors().items()})

    def select_tasks(self, rows: Sequence[int]) -> Panel:
        """A copy with these tasks only, in this order."""
        index = torch.tensor(rows, device=self.device)
        tensors = {key: tensor.index_select(0, index) for key, tensor in self.tensors().items()}
        return self.with_tensors(tensors)

    # ---- the two products

    def combine(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        """into (R n) = start (n) + Σ_t w[:, t] τ[t], for weights w (R T U)."""
        stored = self.stored_numbers()
        if stored is not None and cpu.can_run(stored, into):
            cpu.combine(stored, w[..., 0], start=start, into=into)
        elif stored is not None and gpu.can_run(stored, into):
            gpu.combine(stored, w[..., 0], start=start, into=into)
        else:
            self.combine_with_torch(w, start=start, into=into)

    def inner(self, g: Tensor) -> Tensor:
        """⟨τ[t], g⟩ per run, task and block: (R n) -> (R T U)."""
        stored = self.stored_numbers()
        if stored is not None and cpu.can_run(stored, g):
            return cpu.inner(stored, g).unsqueeze(-1)
        if stored is not None and gpu.can_run(stored, g):
            return gpu.inner(stored, g).unsqueeze(-1)
        return self.inner_with_torch(g)

    def stored_numbers(self) -> cpu.StoredNumbers | None:
        """The panel as the kernels read it; None if they cannot read this kind of panel."""
        return None

    def combine_with_torch(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        """`combine` on any device."""
        weights = w[..., 0].contiguous()
        for a, b, tau in self.iter_chunks(into.dtype):
            torch.addmm(start[a:b], weights, tau, out=into[:, a:b])

    def inner_with_torch(self, g: Tensor) -> Tensor:
        """`inner` on any device."""
        total = g.new_zeros(g.shape[0], self.task_count)
        for a, b, tau in self.iter_chunks(g.dtype):
            total.addmm_(g[:, a:b], tau.t())
        return total.unsqueeze(-1)

    def combine_partitioned(self, w: Tensor, *, partition_of: Tensor, start: Tensor, into: Tensor) -> None:
        """`combine` with a weight per partition: w (R T Q); `partition_of` (n) is each number's partition."""
        for a, b, tau in self.iter_chunks(into.dtype):
            index = partition_of[a:b].long()
            for run in range(into.shape[0]):
                weighted = w[run].index_select(1, index).mul_(tau)  # (T s)
                torch.add(start[a:b], weighted.sum(0), out=into[run, a:b])

    def inner_partitioned(self, g: Tensor, *, partition_of: Tensor, count: int) -> Tensor:
        """`inner` per partition: (R n) -> (R T Q) with Q = count."""
        total = g.new_zeros(g.shape[0], self.task_count, count)
        for a, b, tau in self.iter_chunks(g.dtype):
            index = partition_of[a:b].long().expand(self.task_count, -1)
            for run in range(g.shape[0]):
                products = tau * g[run, a:b]
                if g.is_cuda:
                    total[run] += sum_by_index(products, index, count=count)
                else:
                    total[run].scatter_add_(1, index, products)
        return total

    # ---- the same with weights per row, for a panel of one block

    def combine_rows(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        """`combine` with weights w (R rows T): the block's rows of equal length have their own."""
        rows = w.shape[1]
        stored = self._stored_rows(rows)
        if stored is not None and cpu.can_run(stored, into):
            cpu.combine_rows(stored, w, start=start, into=into)
        elif stored is not None and gpu.can_run(stored, into, rows=rows):
            gpu.combine_rows(stored, w, start=start, into=into)
        else:
            self.combine_rows_with_torch(w, start=start, into=into)

    def inner_rows(self, g: Tensor, *, rows: int) -> Tensor:
        """⟨τ[t], g⟩ per run, row and task: (R n) -> (R rows T)."""
        stored = self._stored_rows(rows)
        if stored is not None and cpu.can_run(stored, g):
            return cpu.inner_rows(stored, g, rows=rows)
        if stored is not None and gpu.can_run(stored, g, rows=rows):
            return gpu.inner_rows(stored, g, rows=rows)
        return self.inner_rows_with_torch(g, rows=rows)

    def _stored_rows(self, rows: int) -> cpu.StoredNumbers | None:
        """The panel as the kernels read it, where its rows are long enough for them."""
        return self.stored_numbers() if self.numel >= cpu.MIN_ROW * rows else None

    def combine_rows_with_torch(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        """`combine_rows` on any device."""
        cols = self.numel // w.shape[1]
        weights = w.transpose(0, 1)  # (rows R T)
        for a, b, tau in self.iter_chunks(into.dtype, multiple=cols):
            own, base = weights[a // cols : b // cols], start[a:b].view(-1, 1, cols)
            theta = torch.baddbmm(base, own, _by_row(tau, cols))  # (q R T) @ (q T cols)
            into[:, a:b].view(len(into), -1, cols).copy_(theta.transpose(0, 1))

    def inner_rows_with_torch(self, g: Tensor, *, rows: int) -> Tensor:
        """`inner_rows` on any device."""
        cols = self.numel // rows
        found = [
            torch.bmm(_by_row(g[:, a:b], cols), _by_row(tau, cols).transpose(1, 2))  # (q R cols) @ (q cols T)
            for a, b, tau in self.iter_chunks(g.dtype, multiple=cols)
        ]
        return torch.cat(found).transpose(0, 1)

    def gram(self) -> Tensor:
        """⟨τ[t], τ[s]⟩ summed over the panel's blocks, (T T) in float32."""
        total = torch.zeros(self.task_count, self.task_count, device=self.device)
        for _, _, tau in self.iter_chunks(torch.float32):
            total.addmm_(tau, tau.t())
        return total

    def iter_chunks(self, dtype: torch.dtype, *, multiple: int = 1) -> Iterator[tuple[int, int, Tensor]]:
        """(a, b, τ[:, a:b]) in `dtype`, front to back. All chunks share one scratch: use each at once.

        Chunks start and stop at a `multiple`, which divides `alignment` or is divided by it.
        """
        unit = max(self.alignment, multiple)
        limit = _SCRATCH_NUMEL.get(self.device.type, _SCRATCH_NUMEL_GPU) // self.task_count
        step = min(self.numel, max(unit, limit // unit * unit))
        scratch = torch.empty(self.task_count * step, dtype=dtype, device=self.device)
        for a in range(0, self.numel, step):
            b = min(a + step, self.numel)
            out = scratch[: self.task_count * (b - a)].view(self.task_count, b - a)
            yield a, b, self.read_into(out, a)


def sum_by_index(numbers: Tensor, index: Tensor, *, count: int) -> Tensor:
    """Sums of numbers (T s) with the same index (T s) in 0 … count − 1, as (T count): always the same bits.

    `scatter_add_` adds float numbers on a GPU in whatever order they come, and rounds each time. So they are
    added as integers, in units of 2⁻³⁷ of the task's largest number (above 2⁻⁸⁸): exact in any order, and
    finer than float32. Up to 2²⁴ of them fit 64 bits. What is not finite makes the task's sums NaN.
    """
    largest = numbers.abs().amax(dim=1, keepdim=True)
    # a power of two, so that scaling rounds nothing
    exponent = _FIXED_BITS - torch.frexp(largest).exponent.clamp(min=_FIXED_BITS - _MAX_EXPONENT)
    scale = torch.exp2(exponent.to(numbers.dtype))
    units = torch.zeros(len(numbers), count, dtype=torch.int64, device=numbers.device)
    units.scatter_add_(1, index, (numbers * scale).to(torch.int64))
    return (units / scale.double()).to(numbers.dtype) + 0.0 * largest


def _by_row(numbers: Tensor, cols: int) -> Tensor:
    """(L n) as (rows L cols), over the same memory."""
    return numbers.view(len(numbers), -1, cols).transpose(0, 1)


@dataclass(frozen=True, eq=False)
class DensePanel(Panel):
    """One block as it is: data (T n) of any float dtype, times a scale (T) where the dtype is float16."""

    block_indices: tuple[int, ...]
    data: Tensor
    scale: Tensor | None = None

    @property
    @override
    def task_count(self) -> int:
        return self.data.shape[0]

    @property
    @override
    def numel(self) -> int:
        return self.data.shape[1]

    @override
    def tensors(self) -> Mapping[str, Tensor]:
        return {"data": self.data} if self.scale is None else {"data": self.data, "scale": self.scale}

    @override
    def with_tensors(self, tensors: Mapping[str, Tensor]) -> DensePanel:
        return DensePanel(self.block_indices, tensors["data"], tensors.get("scale"))

    @override
    def read_into(self, out: Tensor, start: int) -> Tensor:
        stored = self.data[:, start : start + out.shape[1]]
        if stored.dtype == out.dtype and self.scale is None:
            return stored
        tau = out.copy_(stored)
        return tau if self.scale is None else tau.mul_(self.scale.to(tau.dtype).unsqueeze(1))

    @override
    def stored_numbers(self) -> cpu.StoredNumbers:
        scale = torch.ones(self.task_count, device=self.device) if self.scale is None else self.scale
        return cpu.StoredNumbers(self.data, scale)

    @override
    def combine_with_torch(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        if self.data.dtype == into.dtype and self.scale is None:
            _combine_plain(self.data, w[..., 0].contiguous(), start, into)
        elif self.scale is not None and into.shape[0] == 1 and half.is_fast(self.data, into):
            half.combine(self.data, w[0, :, 0] * self.scale, start=start, into=into[0])
        else:
            super().combine_with_torch(w, start=start, into=into)

    @override
    def inner_with_torch(self, g: Tensor) -> Tensor:
        if self.data.dtype == g.dtype and self.scale is None:
            return _inner_plain(self.data, g).unsqueeze(-1)
        if self.scale is not None and g.shape[0] == 1 and half.is_fast(self.data, g):
            return (half.inner(self.data, g[0]) * self.scale).view(1, -1, 1)
        return super().inner_with_torch(g)


def _combine_plain(data: Tensor, w: Tensor, start: Tensor, into: Tensor) -> None:
    if into.shape[0] == 1:  # a matrix–vector product streams faster than its matrix–matrix form
        into[0].copy_(start).addmv_(data.t(), w[0])
    else:
        torch.addmm(start, w, data, out=into)


def _inner_plain(data: Tensor, g: Tensor) -> Tensor:
    return torch.mv(data, g[0]).unsqueeze(0) if g.shape[0] == 1 else g @ data.t()


@dataclass(frozen=True, eq=False)
class BundlePanel(Panel):
    """Many small blocks in one batched product: tiles (T G TILE), each a piece of one block.

    A tower has a hundred biases and norms that hold a thousandth of its numbers. One by one they would cost a
    hundred launches; cut into equal tiles they cost one. `tile_owner` (G) says which of the U blocks a tile
    belongs to.
    """

    block_indices: tuple[int, ...]
    sizes: tuple[int, ...]
    tiles: Tensor
    scale: Tensor | None  # (T U)
    tile_owner: Tensor

    @classmethod
    def from_panels(cls, panels: Sequence[DensePanel]) -> BundlePanel:
        """Cut small blocks of one dtype into tiles; the last tile of each is filled up with zeros."""
        padded = [torch.nn.functional.pad(panel.data, (0, -panel.numel % TILE)) for panel in panels]
        tile_counts = torch.tensor([data.shape[1] // TILE for data in padded])
        scales = [panel.scale for panel in panels if panel.scale is not None]
        first = panels[0]
        return cls(
            block_indices=tuple(index for panel in panels for index in panel.block_indices),
            sizes=tuple(panel.numel for panel in panels),
            tiles=torch.cat(padded, dim=1).view(first.task_count, -1, TILE),
            scale=torch.stack(scales, dim=1) if scales else None,
            tile_owner=torch.repeat_interleave(torch.arange(len(panels)), tile_counts).to(first.device),
        )

    @property
    @override
    def task_count(self) -> int:
        return self.tiles.shape[0]

    @property
    @override
    def numel(self) -> int:
        return self.tiles.shape[1] * TILE

    @override
    def tensors(self) -> Mapping[str, Tensor]:
        return {"tiles": self.tiles} if self.scale is None else {"tiles": self.tiles, "scale": self.scale}

    @override
    def with_tensors(self, tensors: Mapping[str, Tensor]) -> BundlePanel:
        owner = self.tile_owner.to(tensors["tiles"].device)
        return BundlePanel(self.block_indices, self.sizes, tensors["tiles"], tensors.get("scale"), owner)

    @override
    def offsets(self) -> tuple[int, ...]:
        starts, at = [], 0
        for size in self.sizes:
            starts.append(at)
            at += size + -size % TILE
        return tuple(starts)

    @override
    def split(self) -> Sequence[DensePanel]:
        flat = self.tiles.view(self.task_count, -1)
        spans = zip(self.block_indices, self.sizes, self.offsets(), strict=True)
        return [
            DensePanel((m,), flat[:, at : at + size], None if self.scale is None else self.scale[:, u])
            for u, (m, size, at) in enumerate(spans)
        ]

    @override
    def read_into(self, out: Tensor, start: int) -> Tensor:
        return self._widen(out.dtype).reshape(self.task_count, -1)[:, start : start + out.shape[1]]

    @override
    def combine(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        runs, weights = into.shape[0], w.index_select(2, self.tile_owner).permute(2, 0, 1)  # (G R T)
        tau = self._widen(into.dtype).transpose(0, 1)  # (G T S)
        theta = torch.baddbmm(start.view(-1, 1, TILE), weights, tau)  # (G R S)
        into.view(runs, -1, TILE).copy_(theta.transpose(0, 1))

    @override
    def inner(self, g: Tensor) -> Tensor:
        gradient = g.view(g.shape[0], -1, TILE).transpose(0, 1)  # (G R S)
        per_tile = torch.bmm(gradient, self._widen(g.dtype).permute(1, 2, 0))  # (G R S) @ (G S T)
        if g.is_cuda:
            return self.sum_tiles(per_tile).permute(1, 2, 0)  # (U R T) -> (R T U)
        zeros = g.new_zeros(len(self.block_indices), *per_tile.shape[1:])
        return zeros.index_add_(0, self.tile_owner, per_tile).permute(1, 2, 0)

    def sum_tiles(self, per_tile: Tensor) -> Tensor:
        """Sums over the tiles of each block, (G R T) -> (U R T): always in the same order, on a GPU too."""
        padded = torch.cat([per_tile, per_tile.new_zeros(1, *per_tile.shape[1:])])
        return padded[self._tiles_of_blocks].sum(1)

    @cached_property
    def _tiles_of_blocks(self) -> Tensor:
        """The tiles of each block, (U most); filled up with G, which is none of them."""
        counts, tiles = [-(-size // TILE) for size in self.sizes], self.tiles.shape[1]
        ends = accumulate(counts)
        rows = [
            [*range(end - own, end), *[tiles] * (max(counts) - own)]
            for end, own in zip(ends, counts, strict=True)
        ]
        return torch.tensor(rows, device=self.device)

    def _widen(self, dtype: torch.dtype) -> Tensor:
        """The tiles in `dtype`, scaled, (T G S)."""
        tiles = self.tiles.to(dtype)
        return tiles if self.scale is None else tiles * self.scale.to(dtype)[:, self.tile_owner].unsqueeze(2)


def to_scaled_half(tau: Tensor) -> tuple[Tensor, Tensor]:
    """τ (T n) as float16 and a power of two per task (T), chosen so that the narrow exponent loses nothing.

    Fine-tuning moves a weight by 1e-5 or so, where plain float16 keeps only 7 bits.
    """
    largest = tau.abs().amax(dim=1)
    scale = torch.exp2(torch.ceil(torch.log2(largest.clamp_min(torch.finfo(torch.float32).tiny))))
    return (tau / scale.unsqueeze(1)).half(), scale
