"""Panels that hold a weight matrix in fewer bits: int8, int4 and low rank.

    int8        q · s[row]             one scale per output channel; 1 byte per number
    int4        q · s[row, group]      two numbers per byte; a channel is cut into groups of up to 128
    low rank    U V                    rank r; truncated SVD, or the factors a LoRA training gives

It is the *difference* τ that is quantised: it is small, so its steps are small; quantised weights minus base
weights would keep only noise (TVQ, ICCV 2025). The scale multiplies whole channels where the numbers are
widened; low rank never widens at all, both products go through the factors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from atlas_engine.bank.kernels import cpu
from atlas_engine.bank.panels import Panel

__all__ = ["LowRankPanel", "QuantPanel", "group_size", "quantise", "truncate_rank"]

GROUP = 128
"""The most numbers that share a scale in int4."""

_CLIPS = tuple(1.0 - 0.05 * i for i in range(1, 10))
"""Fractions of the largest value tried as int4's range: giving up the rarest values refines all others."""


@dataclass(frozen=True, eq=False)
class QuantPanel(Panel):
    """One matrix as integers q (T rows width) and scales (T rows groups); int4 has width = cols / 2.

    In int4 the low half of byte j is column j and the high half column j + cols / 2, so that both unpack to
    runs of neighbours.
    """

    block_indices: tuple[int, ...]
    q: Tensor
    scale: Tensor
    bits: int

    @property
    @override
    def task_count(self) -> int:
        return self.q.shape[0]

    @property
    @override
    def numel(self) -> int:
        return self.q.shape[1] * self.alignment

    @property
    @override
    def alignment(self) -> int:
        return self.q.shape[2] * (8 // self.bits)

    @override
    def tensors(self) -> Mapping[str, Tensor]:
        return {"q": self.q, "scale": self.scale}

    @override
    def with_tensors(self, tensors: Mapping[str, Tensor]) -> QuantPanel:
        return QuantPanel(self.block_indices, tensors["q"], tensors["scale"], self.bits)

    @override
    def stored_numbers(self) -> cpu.StoredNumbers:
        return cpu.StoredNumbers(self.q, self.scale, packed_width=self.q.shape[2] if self.bits == 4 else 0)

    @override
    def read_into(self, out: Tensor, start: int) -> Tensor:
        cols, groups = self.alignment, self.scale.shape[2]
        rows = slice(start // cols, (start + out.shape[1]) // cols)
        packed, tau = self.q[:, rows], out.view(self.task_count, -1, cols)
        if self.bits == 8:
            tau.copy_(packed)
        else:
            tau[..., : cols // 2] = (packed << 4) >> 4  # the shift back to the right carries the sign along
            tau[..., cols // 2 :] = packed >> 4
        scale = self.scale[:, rows].to(tau.dtype).unsqueeze(3)
        tau.view(self.task_count, -1, groups, cols // groups).mul_(scale)
        return out


def quantise(tau: Tensor, *, block_index: int, cols: int, bits: int) -> QuantPanel:
    """τ (T n) as a panel of `bits` (8 or 4), with `cols` numbers per output channel (even for 4)."""
    top = 2 ** (bits - 1) - 1
    group = cols if bits == 8 else group_size(cols)
    grouped = tau.view(tau.shape[0], -1, cols // group, group)
    largest = grouped.abs().amax(dim=3, keepdim=True)
    scale_dtype = torch.float32 if bits == 8 else torch.bfloat16

    def clip_at(fraction: float) -> tuple[Tensor, Tensor]:
        """Scale and squared error of each group if its range is this fraction of its largest value."""
        scale = (largest * (fraction / top)).to(scale_dtype).float()
        return scale, (_round(grouped, scale, top) * scale - grouped).square().sum(dim=3, keepdim=True)

    # of the clipping ranges tried, keep the one with the smallest error, group by group
    best_scale, best_error = clip_at(1.0)
    for fraction in _CLIPS if bits == 4 else ():
        scale, error = clip_at(fraction)
        best_scale = torch.where(error < best_error, scale, best_scale)
        best_error = torch.minimum(error, best_error)

    q = _round(grouped, best_scale, top).to(torch.int8).view(tau.shape[0], -1, cols)
    if bits == 4:  # two numbers to a byte
        low, high = q[..., : cols // 2], q[..., cols // 2 :]
        q = (low & 15) | (high << 4)
    return QuantPanel((block_index,), q.contiguous(), best_scale.squeeze(3).to(scale_dtype), bits)


def _round(tau: Tensor, scale: Tensor, top: int) -> Tensor:
    safe = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (tau / safe).round_().clamp_(-top - 1, top)


def group_size(cols: int) -> int:
    """The largest divisor of a channel's length up to GROUP, or the whole channel if that would be tiny."""
    best = max(size for size in range(1, min(GROUP, cols) + 1) if cols % size == 0)
    return best if best >= 32 else cols


@dataclass(frozen=True, eq=False)
class LowRankPanel(Panel):
    """One matrix as factors: τ[t] = u[t] v[t], with u (T rows r) and v (T r cols)."""

    block_indices: tuple[int, ...]
    u: Tensor
    v: Tensor

    @property
    @override
    def task_count(self) -> int:
        return self.u.shape[0]

    @property
    @override
    def numel(self) -> int:
        return self.u.shape[1] * self.v.shape[2]

    @property
    @override
    def alignment(self) -> int:
        return self.v.shape[2]

    @override
    def tensors(self) -> Mapping[str, Tensor]:
        return {"u": self.u, "v": self.v}

    @override
    def with_tensors(self, tensors: Mapping[str, Tensor]) -> LowRankPanel:
        return LowRankPanel(self.block_indices, tensors["u"], tensors["v"])

    @override
    def read_into(self, out: Tensor, start: int) -> Tensor:
        rows = slice(start // self.alignment, (start + out.shape[1]) // self.alignment)
        u, v = self.u[:, rows].to(out.dtype), self.v.to(out.dtype)
        torch.bmm(u, v, out=out.view(self.task_count, -1, self.alignment))
        return out

    @override
    def combine(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        per_row = w.transpose(1, 2).expand(-1, self.u.shape[1], -1)  # (R T 1) -> (R rows T)
        self.combine_rows(per_row, start=start, into=into)

    @override
    def inner(self, g: Tensor) -> Tensor:
        return self._projected(g).sum(dim=(1, 3)).unsqueeze(-1)

    @override
    def combine_rows(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        u, v = self._side_by_side(into.dtype)
        rows = len(u)
        for run, theta in enumerate(into):
            weighted = (u * w[run].unsqueeze(2)).reshape(rows, -1)  # (rows T r) * (rows T 1) -> (rows T·r)
            torch.addmm(start.view(rows, -1), weighted, v, out=theta.view(rows, -1))  # @ (T·r cols)

    @override
    def inner_rows(self, g: Tensor, *, rows: int) -> Tensor:
        return self._projected(g).sum(dim=3)  # (R rows T)

    def _projected(self, g: Tensor) -> Tensor:
        """The products whose sums are ⟨τ[t], g⟩ per row, (R rows T r)."""
        u, v = self._side_by_side(g.dtype)
        projected = g.reshape(-1, self.alignment) @ v.t()  # (R·rows cols) @ (cols T·r)
        return projected.view(g.shape[0], *u.shape) * u

    def _side_by_side(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The factors with tasks side by side: u (rows T r) and v (T·r cols)."""
        return self.u.to(dtype).transpose(0, 1), self.v.to(dtype).reshape(-1, self.alignment)


def truncate_rank(tau: Tensor, *, block_index: int, cols: int, rank: int) -> LowRankPanel:
    """τ (T n) as its best rank-r factors (randomised SVD; exact where the matrix is small)."""
    matrices = tau.view(tau.shape[0], -1, cols)
    us, vs = zip(*(_factorise(matrix, rank) for matrix in matrices), strict=True)
    return LowRankPanel((block_index,), torch.stack(us), torch.stack(vs))


def _factorise(matrix: Tensor, rank: int, *, rounds: int = 4, extra: int = 8) -> tuple[Tensor, Tensor]:
    """u (rows r), v (r cols), by Halko, Martinsson and Tropp 2011. The same call gives the same answer."""
    if min(matrix.shape) > 4 * (rank + extra):
        # find a basis of the largest directions by power iteration, then decompose within it
        draw = torch.Generator(device="cpu").manual_seed(rank)
        basis = matrix @ torch.randn(matrix.shape[1], rank + extra, generator=draw).to(matrix)
        for _ in range(rounds):
            basis = torch.linalg.qr(matrix @ (matrix.t() @ torch.linalg.qr(basis)[0]))[0]
        left, values, right = torch.linalg.svd(basis.t() @ matrix, full_matrices=False)
        left = basis @ left
    else:
        left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    root = values[:rank].sqrt()
    return left[:, :rank] * root, root.unsqueeze(1) * right[:rank]
