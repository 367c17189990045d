"""Panels that hold a weight matrix in fewer bits: int8, int4 and low rank. Knows nothing of banks or files.

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

_CLIPS = tuple(1.0 - 0.05 * i for i in range(10))
"""Fractions of the largest value tried as int4's range: giving up the rarest values refines all others."""


@dataclass(frozen=True, eq=False)
class QuantPanel(Panel):
    """One matrix as integers q (T rows width) and scales (T rows groups); int4 has width = cols / 2.

    In int4 the low half of byte j is column j and the high half column j + cols / 2, so that both unpack to
    runs of neighbours.
    """

    units: tuple[int, ...]
    q: Tensor
    scale: Tensor
    bits: int

    @property
    @override
    def tasks(self) -> int:
        return self.q.shape[0]

    @property
    @override
    def numel(self) -> int:
        return self.q.shape[1] * self.grain

    @property
    @override
    def grain(self) -> int:
        return self.q.shape[2] * (8 // self.bits)

    @override
    def tensors(self) -> Mapping[str, Tensor]:
        return {"q": self.q, "scale": self.scale}

    @override
    def rebuilt(self, tensors: Mapping[str, Tensor]) -> QuantPanel:
        return QuantPanel(self.units, tensors["q"], tensors["scale"], self.bits)

    @override
    def stored(self) -> cpu.StoredNumbers:
        return cpu.StoredNumbers(self.q, self.scale, half=self.q.shape[2] if self.bits == 4 else 0)

    @override
    def fill(self, room: Tensor, start: int) -> Tensor:
        cols, groups = self.grain, self.scale.shape[2]
        rows = slice(start // cols, (start + room.shape[1]) // cols)
        packed, tau = self.q[:, rows], room.view(self.tasks, -1, cols)
        if self.bits == 8:
            tau.copy_(packed)
        else:
            tau[..., : cols // 2] = (packed << 4) >> 4  # the shift back to the right carries the sign along
            tau[..., cols // 2 :] = packed >> 4
        scale = self.scale[:, rows].to(tau.dtype).unsqueeze(3)
        tau.view(self.tasks, -1, groups, cols // groups).mul_(scale)
        return room


def quantise(tau: Tensor, *, unit: int, cols: int, bits: int) -> QuantPanel:
    """τ (T n) as a panel of `bits` (8 or 4), with `cols` numbers per output channel (even for 4)."""
    top = 2 ** (bits - 1) - 1
    group = cols if bits == 8 else group_size(cols)
    grouped = tau.view(tau.shape[0], -1, cols // group, group)
    largest = grouped.abs().amax(dim=3, keepdim=True)
    clips = (1.0,) if bits == 8 else _CLIPS
    dtype = torch.float32 if bits == 8 else torch.bfloat16
    best = best_error = None
    for clip in clips:
        scale = (largest * (clip / top)).to(dtype).float()
        error = (_rounded(grouped, scale, top) * scale - grouped).square().sum(dim=3, keepdim=True)
        if best is None or best_error is None:
            best, best_error = scale, error
        else:
            better = error < best_error
            best, best_error = torch.where(better, scale, best), torch.minimum(error, best_error)
    assert best is not None
    q = _rounded(grouped, best, top).to(torch.int8).view(tau.shape[0], -1, cols)
    if bits == 4:
        low, high = q[..., : cols // 2], q[..., cols // 2 :]
        q = (low & 15) | (high << 4)
    return QuantPanel((unit,), q.contiguous(), best.squeeze(3).to(dtype), bits)


def _rounded(tau: Tensor, scale: Tensor, top: int) -> Tensor:
    safe = torch.where(scale > 0, scale, torch.ones_like(scale))
    return (tau / safe).round_().clamp_(-top - 1, top)


def group_size(cols: int) -> int:
    """The largest divisor of a channel's length up to GROUP, or the whole channel if that would be tiny."""
    best = max(size for size in range(1, min(GROUP, cols) + 1) if cols % size == 0)
    return best if best >= 32 else cols


@dataclass(frozen=True, eq=False)
class LowRankPanel(Panel):
    """One matrix as factors: τ[t] = u[t] v[t], with u (T rows r) and v (T r cols)."""

    units: tuple[int, ...]
    u: Tensor
    v: Tensor

    @property
    @override
    def tasks(self) -> int:
        return self.u.shape[0]

    @property
    @override
    def numel(self) -> int:
        return self.u.shape[1] * self.v.shape[2]

    @property
    @override
    def grain(self) -> int:
        return self.v.shape[2]

    @override
    def tensors(self) -> Mapping[str, Tensor]:
        return {"u": self.u, "v": self.v}

    @override
    def rebuilt(self, tensors: Mapping[str, Tensor]) -> LowRankPanel:
        return LowRankPanel(self.units, tensors["u"], tensors["v"])

    @override
    def fill(self, room: Tensor, start: int) -> Tensor:
        rows = slice(start // self.grain, (start + room.shape[1]) // self.grain)
        u, v = self.u[:, rows].to(room.dtype), self.v.to(room.dtype)
        torch.bmm(u, v, out=room.view(self.tasks, -1, self.grain))
        return room

    @override
    def combine(self, w: Tensor, *, start: Tensor, into: Tensor) -> None:
        u, v = self._wide(into.dtype)
        for run, theta in enumerate(into):
            weighted = u * w[run]  # (rows T r) * (T 1)
            torch.addmm(
                start.view(len(u), -1), weighted.reshape(len(u), -1), v, out=theta.view(len(u), -1)
            )  # (rows T·r) @ (T·r cols)

    @override
    def inner(self, g: Tensor) -> Tensor:
        u, v = self._wide(g.dtype)
        seen = g.reshape(-1, self.grain) @ v.t()  # (R·rows cols) @ (cols T·r)
        return (seen.view(g.shape[0], *u.shape) * u).sum(dim=(1, 3)).unsqueeze(-1)

    def _wide(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The factors with tasks side by side: u (rows T r) and v (T·r cols)."""
        return self.u.to(dtype).transpose(0, 1), self.v.to(dtype).reshape(-1, self.grain)


def truncate_rank(tau: Tensor, *, unit: int, cols: int, rank: int) -> LowRankPanel:
    """τ (T n) as its best rank-r factors (randomised SVD; exact where the matrix is small)."""
    matrices = tau.view(tau.shape[0], -1, cols)
    factors = [_factors(matrix, rank) for matrix in matrices]
    return LowRankPanel((unit,), torch.stack([u for u, _ in factors]), torch.stack([v for _, v in factors]))


def _factors(matrix: Tensor, rank: int, *, rounds: int = 4, extra: int = 8) -> tuple[Tensor, Tensor]:
    """u (rows r), v (r cols), by Halko, Martinsson and Tropp 2011. The same call gives the same answer."""
    if min(matrix.shape) > 4 * (rank + extra):
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
