"""The numbers of a bank, block by block, and the two products that ever touch them. Knows nothing of files.

A panel is the T × n matrix of task vectors of one block (or of many small blocks, which go together):

    combine   into = start + Σ_t w[t] τ[t]        (R T) @ (T n) -> (R n)
    inner     ⟨τ[t], g⟩ for every t                (R n) @ (n T) -> (R T)

R runs go through at once, so the numbers are read once each way whatever R is. Sums are kept in the dtype of
`into` and `g` (float32; float64 in a finite-difference test). Storage narrower than that is widened in
registers (`native`, on a CPU with numba), or piece by piece in a scratch that stays in cache, never as a
whole. No product waits for the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from atlas_engine.bank.kernels import cpu, half

__all__ = ["TILE", "BundlePanel", "DensePanel", "Panel", "Rows", "to_scaled_half"]

TILE = 256
"""Small blocks are cut into tiles of this many numbers, each belonging to one block."""

_SCRATCH_NUMEL = {"cpu": 2**18}
_SCRATCH_NUMEL_GPU = 2**24  # few launches matter more than cache on a GPU


class Panel(ABC):
    """The task vectors of the blocks `units` (positions in the block table) in one storage format."""

    units: tuple[int, ...]

    @property
    @abstractmethod
    def tasks(self) -> int:
        """T."""

    @property
    @abstractmethod
    def numel(self) -> int:
        """n, the numbers per task, padding included."""

    @property
    def grain(self) -> int:
        """Pieces start and stop at multiples of this."""
        return 1

    @abstractmethod
    def tensors(self) -> Mapping[str, Tensor]:
        """What the panel stores, every tensor with T first."""

    @abstractmethod
    def rebuilt(self, tensors: Mapping[str, Tensor]) -> Panel:
        """The same panel over other tensors: moved to a device, or of fewer tasks."""

    @abstractmethod
    def fill(self, room: Tensor, start: int) -> Tensor:
        """τ[:, start:…] in the dtype and width of `room` (T s): written there, or a view where it lies so."""

    def decode(self, start: int, stop: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """τ[:, start:stop] in `dtype`, (T, stop − start)."""
        return self.fill(torch.empty(self.tasks, stop - start, dtype=dtype, device=self.device), start)

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return next(iter(self.tensors().values())).device

    @property
    def nbytes(self) -> int:
        """Bytes held, scales included."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors().values())

    def combine(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        """into (R n) = start (n) + Σ_t w[:, t] τ[t], for weights w (R T U) with U = len(units)."""
        stored = self.stored()
        if stored is not None and cpu.can_run(stored, into):
            cpu.combine(stored, w[..., 0], start=start, into=into)
        else:
            self.combine_by_torch(w, start=start, into=into)

    def inner(self, g: Tensor) -> Tensor:
        """⟨τ[t], g⟩ per run, task and unit: (R n) -> (R T U)."""
        stored = self.stored()
        if stored is not None and cpu.can_run(stored, g):
            return cpu.inner(stored, g).unsqueeze(-1)
        return self.inner_by_torch(g)

    def stored(self) -> cpu.StoredNumbers | None:
        """The numbers as they lie in memory, where that is the same for all of them."""
        return None

    def combine_by_torch(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        """`combine` on any device."""
        weights = w[..., 0].contiguous()
        for a, b, tau in self.pieces(into.dtype):
            torch.addmm(start[a:b], weights, tau, out=into[:, a:b])

    def inner_by_torch(self, g: Tensor) -> Tensor:
        """`inner` on any device."""
        total = g.new_zeros(g.shape[0], self.tasks)
        for a, b, tau in self.pieces(g.dtype):
            total.addmm_(g[:, a:b], tau.t())
        return total.unsqueeze(-1)

    def combine_parts(self, w: Tensor, *, parts: Tensor, start: Tensor, into: Tensor) -> None:
        """`combine` with a weight of its own for each part: w (R T Q), and `parts` (n) says which part."""
        for a, b, tau in self.pieces(into.dtype):
            index = parts[a:b].long()
            for run in range(into.shape[0]):
                weighted = w[run].index_select(1, index).mul_(tau)  # (T s)
                torch.add(start[a:b], weighted.sum(0), out=into[run, a:b])

    def inner_parts(self, g: Tensor, *, parts: Tensor, count: int) -> Tensor:
        """`inner` for each part: (R n) -> (R T Q) with Q = count."""
        total = g.new_zeros(g.shape[0], self.tasks, count)
        for a, b, tau in self.pieces(g.dtype):
            index = parts[a:b].long().expand(self.tasks, -1)
            for run in range(g.shape[0]):
                total[run].scatter_add_(1, index, tau * g[run, a:b])
        return total

    def gram(self) -> Tensor:
        """⟨τ[t], τ[s]⟩ per unit, (U T T) in float32."""
        total = torch.zeros(self.tasks, self.tasks, device=self.device)
        for _, _, tau in self.pieces(torch.float32):
            total.addmm_(tau, tau.t())
        return total.unsqueeze(0)

    def taken(self, rows: Sequence[int]) -> Panel:
        """A copy with these tasks only, in this order."""
        index = torch.tensor(rows, device=self.device)
        return self.rebuilt({key: tensor.index_select(0, index) for key, tensor in self.tensors().items()})

    def pieces(self, dtype: torch.dtype) -> Iterator[tuple[int, int, Tensor]]:
        """(a, b, τ[:, a:b]) in `dtype`, piece by piece through one scratch: each is void at the next."""
        most = _SCRATCH_NUMEL.get(self.device.type, _SCRATCH_NUMEL_GPU) // self.tasks
        step = min(self.numel, max(self.grain, most // self.grain * self.grain))
        scratch = torch.empty(self.tasks * step, dtype=dtype, device=self.device)
        for a in range(0, self.numel, step):
            b = min(a + step, self.numel)
            yield a, b, self.fill(scratch[: self.tasks * (b - a)].view(self.tasks, b - a), a)


@dataclass(frozen=True, eq=False)
class DensePanel(Panel):
    """One block as it is: data (T n) of any float dtype, times a scale (T) where the dtype is narrow."""

    units: tuple[int, ...]
    data: Tensor
    scale: Tensor | None = None

    @property
    @override
    def tasks(self) -> int:
        return self.data.shape[0]

    @property
    @override
    def numel(self) -> int:
        return self.data.shape[1]

    @override
    def tensors(self) -> Mapping[str, Tensor]:
        return {"data": self.data} if self.scale is None else {"data": self.data, "scale": self.scale}

    @override
    def rebuilt(self, tensors: Mapping[str, Tensor]) -> DensePanel:
        return DensePanel(self.units, tensors["data"], tensors.get("scale"))

    @override
    def fill(self, room: Tensor, start: int) -> Tensor:
        stored = self.data[:, start : start + room.shape[1]]
        if stored.dtype == room.dtype and self.scale is None:
            return stored
        tau = room.copy_(stored)
        return tau if self.scale is None else tau.mul_(self.scale.to(tau.dtype).unsqueeze(1))

    @override
    def stored(self) -> cpu.StoredNumbers:
        return cpu.StoredNumbers(self.data, torch.ones(self.tasks) if self.scale is None else self.scale)

    @override
    def combine_by_torch(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        if self.data.dtype == into.dtype and self.scale is None:
            _combine_plain(self.data, w[..., 0].contiguous(), start, into)
        elif self.scale is not None and into.shape[0] == 1 and half.is_fast(self.data, into):
            half.combine(self.data, w[0, :, 0] * self.scale, start=start, into=into[0])
        else:
            super().combine_by_torch(w, start=start, into=into)

    @override
    def inner_by_torch(self, g: Tensor) -> Tensor:
        if self.data.dtype == g.dtype and self.scale is None:
            return _inner_plain(self.data, g).unsqueeze(-1)
        if self.scale is not None and g.shape[0] == 1 and half.is_fast(self.data, g):
            return (half.inner(self.data, g[0]) * self.scale).view(1, -1, 1)
        return super().inner_by_torch(g)


def _combine_plain(data: Tensor, w: Tensor, start: Tensor, into: Tensor) -> None:
    if into.shape[0] == 1:  # a matrix–vector product streams faster than its matrix–matrix form
        into[0].copy_(start).addmv_(data.t(), w[0])
    else:
        torch.addmm(start, w, data, out=into)


def _inner_plain(data: Tensor, g: Tensor) -> Tensor:
    return torch.mv(data, g[0]).unsqueeze(0) if g.shape[0] == 1 else g @ data.t()


@dataclass(frozen=True)
class Rows:
    """One small block on its way into a bundle: its position, data (T n), and scale (T) if any."""

    unit: int
    data: Tensor
    scale: Tensor | None = None


@dataclass(frozen=True, eq=False)
class BundlePanel(Panel):
    """Many small blocks in one batched product: tiles (T G TILE), each tile a piece of one unit.

    A tower has a hundred biases and norms that hold a thousandth of its numbers. One by one they would cost a
    hundred launches; cut into equal tiles they cost one. `of_unit` (G) says whose piece a tile is.
    """

    units: tuple[int, ...]
    sizes: tuple[int, ...]
    tiles: Tensor
    scale: Tensor | None
    of_unit: Tensor

    @classmethod
    def of(cls, rows: Sequence[Rows]) -> BundlePanel:
        """Cut small blocks of one dtype into tiles; the last tile of each is filled up with zeros."""
        padded = [torch.nn.functional.pad(row.data, (0, -row.data.shape[1] % TILE)) for row in rows]
        counts = torch.tensor([data.shape[1] // TILE for data in padded])
        scales = [row.scale for row in rows if row.scale is not None]
        tasks = rows[0].data.shape[0]
        return cls(
            units=tuple(row.unit for row in rows),
            sizes=tuple(row.data.shape[1] for row in rows),
            tiles=torch.cat(padded, dim=1).view(tasks, -1, TILE),
            scale=torch.stack(scales, dim=1) if scales else None,
            of_unit=torch.repeat_interleave(torch.arange(len(rows)), counts).to(rows[0].data.device),
        )

    @property
    @override
    def tasks(self) -> int:
        return self.tiles.shape[0]

    @property
    @override
    def numel(self) -> int:
        return self.tiles.shape[1] * TILE

    def offsets(self) -> tuple[int, ...]:
        """Where each unit's numbers begin."""
        starts, at = [], 0
        for size in self.sizes:
            starts.append(at)
            at += size + -size % TILE
        return tuple(starts)

    @override
    def tensors(self) -> Mapping[str, Tensor]:
        return {"tiles": self.tiles} if self.scale is None else {"tiles": self.tiles, "scale": self.scale}

    @override
    def rebuilt(self, tensors: Mapping[str, Tensor]) -> BundlePanel:
        of_unit = self.of_unit.to(tensors["tiles"].device)
        return BundlePanel(self.units, self.sizes, tensors["tiles"], tensors.get("scale"), of_unit)

    def rows(self) -> list[Rows]:
        """The small blocks again, as they went in."""
        flat = self.tiles.view(self.tasks, -1)
        return [
            Rows(unit, flat[:, at : at + size], None if self.scale is None else self.scale[:, u])
            for u, (unit, size, at) in enumerate(zip(self.units, self.sizes, self.offsets(), strict=True))
        ]

    @override
    def fill(self, room: Tensor, start: int) -> Tensor:
        return self._widened(room.dtype).reshape(self.tasks, -1)[:, start : start + room.shape[1]]

    @override
    def combine(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        runs, weights = into.shape[0], w.index_select(2, self.of_unit).permute(2, 0, 1)  # (G R T)
        tau = self._widened(into.dtype).transpose(0, 1)  # (G T S)
        theta = torch.baddbmm(start.view(-1, 1, TILE), weights, tau)  # (G R S)
        into.view(runs, -1, TILE).copy_(theta.transpose(0, 1))

    @override
    def inner(self, g: Tensor) -> Tensor:
        per_tile = self._per_tile(g)  # (G R T)
        total = g.new_zeros(len(self.units), *per_tile.shape[1:]).index_add_(0, self.of_unit, per_tile)
        return total.permute(1, 2, 0)

    @override
    def gram(self) -> Tensor:
        tau = self._widened(torch.float32).transpose(0, 1)  # (G T S)
        per_tile = torch.bmm(tau, tau.transpose(1, 2))
        zeros = per_tile.new_zeros(len(self.units), self.tasks, self.tasks)
        return zeros.index_add_(0, self.of_unit, per_tile)

    def _per_tile(self, g: Tensor) -> Tensor:
        gradient = g.view(g.shape[0], -1, TILE).transpose(0, 1)  # (G R S)
        return torch.bmm(gradient, self._widened(g.dtype).permute(1, 2, 0))  # (G R S) @ (G S T)

    def _widened(self, dtype: torch.dtype) -> Tensor:
        tiles = self.tiles.to(dtype)
        return tiles if self.scale is None else tiles * self.scale.to(dtype)[:, self.of_unit].unsqueeze(2)


def to_scaled_half(tau: Tensor) -> tuple[Tensor, Tensor]:
    """τ (T n) as float16 and a power of two per task, chosen so that nothing is lost to the narrow exponent.

    Fine-tuning moves a weight by 1e-5 or so, where plain float16 keeps only 7 bits.
    """
    largest = tau.abs().amax(dim=1)
    scale = torch.exp2(torch.ceil(torch.log2(largest.clamp_min(torch.finfo(torch.float32).tiny))))
    return (tau / scale.unsqueeze(1)).half(), scale
