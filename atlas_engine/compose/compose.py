"""θ(λ) and ∂L/∂λ: the two times an optimiser step touches the bank. Knows nothing of images or losses.

    θ(λ)_m       = θ0_m + Σ_t λ[t, m] τ[t, m]          compose
    ∂L/∂λ[t, m]  = ⟨∂L/∂θ_m, τ[t, m]⟩                   gradient           (aTLAS, arXiv 2407.02880)

Neither needs an autograd graph over the bank, so neither keeps one: compose once per optimiser step, let
every view and micro-batch share θ, add up ∂L/∂θ, and come back once. Both directions stream the bank once
however many runs R (folds, seeds, users) are batched: λ (R, …) gives weights (R, *shape).

    composer = Composer(dict(model.visual.named_parameters()), bank)
    lam = composer.initial()
    theta = composer.compose(lam)                    # a dict of tensors, all views into theta.flat
    grad = composer.gradient(grads)                  # of the shape of lam

λ = 0 gives back θ0 bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import BlockTable
from atlas_engine.bank.panels import BundlePanel, Panel
from atlas_engine.compose.coefficients import Layout
from atlas_engine.errors import BankError, ConfigError

__all__ = ["BlockBuffers", "Composer"]

_ALIGN = 64
"""Blocks begin at multiples of this many numbers, as vector units and matrix kernels like it."""


class BlockBuffers(dict[str, Tensor]):
    """All blocks of a tower by name, each a view into one flat tensor `flat`: (P') or, for R runs, (R P')."""

    def __init__(self, views: Mapping[str, Tensor], flat: Tensor) -> None:
        super().__init__(views)
        self.flat = flat


class Composer:
    """Composition and its gradient for one base tower, one bank and one layout of coefficients."""

    def __init__(
        self, theta0: Mapping[str, Tensor], bank: TaskVectorBank, layout: Layout | None = None
    ) -> None:
        self.bank = bank
        self.blocks = bank.blocks
        self.layout = layout or Layout()
        self.theta0 = _matching(theta0, bank)
        self.shape = self.layout.shape(len(bank.tasks), bank.blocks)
        self._dtype = _widest(self.theta0)
        self._sums = torch.promote_types(self._dtype, torch.float32)
        self._homes = [_Home(panel, bank.device) for panel in bank.panels]
        self._numel = _place(self._homes)
        self._at = {m: home.start + at for home in self._homes for m, at in home.offsets.items()}
        for home in self._homes:
            home.base = self._base(home)
        self._negative_zeros = self._find_negative_zeros()

    def initial(self, value: float = 0.0) -> Tensor:
        """Free coefficients at their start, on the bank's device."""
        return self.layout.initial(len(self.bank.tasks), self.blocks, value=value).to(self.bank.device)

    def buffers(self, runs: int | None = None) -> BlockBuffers:
        """An arena for θ or for ∂L/∂θ, filled with zeros: one flat tensor with a view per block.

        Set each leaf's `.grad` to a view and autograd adds right into the arena; `gradient` takes it whole.
        """
        lead = () if runs is None else (runs,)
        flat = torch.zeros(*lead, self._numel, dtype=self._dtype, device=self.bank.device)
        spans = [(self._at[m], block) for m, block in enumerate(self.blocks)]
        views = {b.name: flat[..., at : at + b.numel].view(*lead, *b.shape) for at, b in spans}
        return BlockBuffers(views, flat)

    @torch.no_grad()
    def compose(self, lam: Tensor, *, into: BlockBuffers | None = None) -> BlockBuffers:
        """θ(λ) in new buffers, or in those given, for free coefficients λ (*shape) or (R, *shape)."""
        batched = self._is_batched(lam)
        arena = self.buffers(lam.shape[0] if batched else None) if into is None else into
        flat = arena.flat if batched else arena.flat.unsqueeze(0)  # (R P')
        weights = self._weights(lam if batched else lam.unsqueeze(0))  # (R T M) or (R T M K)
        if flat.dim() != 2 or flat.shape != (len(weights), self._numel):
            raise ConfigError(
                f"these buffers are {tuple(arena.flat.shape)} but {len(weights)} run(s) of {self._numel} "
                "numbers are composed. Make them with buffers(runs)."
            )
        with torch.autocast(flat.device.type, enabled=False):
            for home in self._homes:
                region = flat[:, home.start : home.stop]
                theta = region if region.dtype == self._sums else region.to(self._sums)
                self._combine(home, weights, theta)
                if theta is not region:
                    region.copy_(theta)
            self._restore_negative_zeros(flat)
        return arena

    @torch.no_grad()
    def gradient(self, grads: Mapping[str, Tensor]) -> Tensor:
        """∂L/∂λ for the free coefficients, from ∂L/∂θ by block name (or an `BlockBuffers`), of one run or of R."""
        missing = [name for name in self.theta0 if name not in grads]
        if missing:
            raise BankError(f"no gradient was given for block '{missing[0]}' ({len(missing)} are missing).")
        first = self.blocks[0]
        batched = grads[first.name].dim() > len(first.shape)
        runs = grads[first.name].shape[0] if batched else 1
        K, M, T = self.layout.partitions, len(self.blocks), self.bank.panels[0].tasks
        full = torch.zeros(runs, T, M, K, dtype=self._sums, device=self.bank.device)
        with torch.autocast(full.device.type, enabled=False):
            for home in self._homes:
                home.scatter(full, self._inner(home, home.gathered(grads, self.blocks, full)))
        if self.bank.row_index is not None:
            full = full.index_select(1, self.bank.row_index)
        free = self.layout.reduce(full if K > 1 else full.squeeze(3), self.blocks)
        return free if batched else free.squeeze(0)

    def gram(self) -> Tensor:
        """⟨τ[t, m], τ[s, m]⟩ for every block, (M T T), read from the bank once and kept."""
        return self._gram

    def delta_norm(self, lam: Tensor) -> Tensor:
        """‖θ(λ)_m − θ0_m‖ per block, (M): √(λᵀ G λ), without touching the bank.

        A random split into K parts leaves 1/K of a block's squared length in each; ×K counts with that.
        """
        weights = self._table(lam)  # (T M K)
        squared = torch.einsum("tmk,mts,smk->mk", weights, self._gram, weights).mean(-1)
        return squared.clamp_min(0).sqrt()

    @cached_property
    def _gram(self) -> Tensor:
        T = self.bank.panels[0].tasks
        gram = torch.zeros(len(self.blocks), T, T, device=self.bank.device)
        with torch.no_grad(), torch.autocast(gram.device.type, enabled=False):
            for home in self._homes:
                gram.index_copy_(0, home.units, home.panel.gram())
        rows = self.bank.row_index
        return gram if rows is None else gram.index_select(1, rows).index_select(2, rows)

    def _table(self, lam: Tensor) -> Tensor:
        self._is_batched(lam, allowed=False)
        table = self.layout.expand(lam.detach(), self.blocks).to(self._gram)
        return table if self.layout.partitions > 1 else table.unsqueeze(-1)

    def _is_batched(self, lam: Tensor, *, allowed: bool = True) -> bool:
        lead = lam.dim() - len(self.shape)
        if tuple(lam.shape[max(lead, 0) :]) != self.shape or lead not in ((0, 1) if allowed else (0,)):
            more = f", or (R, {', '.join(map(str, self.shape))})" if allowed else ""
            raise ConfigError(
                f"coefficients of shape {tuple(lam.shape)} do not fit. Pass {self.shape}{more}."
            )
        return lead == 1

    def _weights(self, lam: Tensor) -> Tensor:
        """λ over all blocks and over all the panels' tasks, of which a selected bank uses only some."""
        full = self.layout.expand(lam.detach(), self.blocks).to(self.bank.device, self._sums)
        if self.bank.row_index is None:
            return full
        shape = (full.shape[0], self.bank.panels[0].tasks, *full.shape[2:])
        return full.new_zeros(shape).index_copy_(1, self.bank.row_index, full)

    def _combine(self, home: _Home, weights: Tensor, theta: Tensor) -> None:
        own = home.own(weights)
        start = home.base if home.base is not None else self._flat_base(home)
        if self.layout.partitions == 1:
            home.panel.combine(own, start=start, into=theta)
        else:
            home.panel.combine_parts(own.flatten(2), parts=self._parts(home), start=start, into=theta)

    def _inner(self, home: _Home, g: Tensor) -> Tensor:
        K = self.layout.partitions
        if K == 1:
            return home.panel.inner(g).unsqueeze(-1)
        count = len(home.panel.units) * K
        inner = home.panel.inner_parts(g, parts=self._parts(home), count=count)
        return inner.view(*inner.shape[:2], -1, K)

    def _flat_base(self, home: _Home) -> Tensor:
        return self.theta0[self.blocks[home.panel.units[0]].name].reshape(-1).to(self._sums)

    def _base(self, home: _Home) -> Tensor | None:
        """θ0 of the bundled small blocks, laid out as they are; a large block is read where it lies."""
        if not isinstance(home.panel, BundlePanel):
            return None
        base = torch.zeros(home.panel.numel, dtype=self._sums, device=self.bank.device)
        for m, at in home.offsets.items():
            block = self.blocks[m]
            base[at : at + block.numel] = self.theta0[block.name].reshape(-1)
        return base

    def _parts(self, home: _Home) -> Tensor:
        """Which of its unit's K parts each number belongs to, counted through the panel's units."""
        if home.parts is None:
            K = self.layout.partitions
            parts = torch.zeros(home.panel.numel, dtype=torch.int32)
            for u, (m, at) in enumerate(home.offsets.items()):
                numel = self.blocks[m].numel
                parts[at : at + numel] = self.layout.split(numel) + u * K
            home.parts = parts.to(self.bank.device)
        return home.parts

    def _find_negative_zeros(self) -> Tensor | None:
        """Where θ0 is −0.0: adding a zero would turn it to +0.0, and zero λ must change no bit."""
        found = [
            self._at[m] + torch.nonzero(flat.eq(0) & flat.signbit()).flatten()
            for m, flat in enumerate(self.theta0[block.name].reshape(-1) for block in self.blocks)
        ]
        index = torch.cat(found)
        return index if len(index) else None

    def _restore_negative_zeros(self, flat: Tensor) -> None:
        if self._negative_zeros is not None:
            theta = flat.index_select(1, self._negative_zeros)
            flat.index_copy_(1, self._negative_zeros, torch.where(theta == 0, -0.0, theta))


class _Home:
    """Where a panel's blocks live in the arena, and the way from and to tensors over all blocks."""

    def __init__(self, panel: Panel, device: torch.device) -> None:
        self.panel = panel
        self.start = 0
        self.units = torch.tensor(panel.units, device=device)
        starts = panel.offsets() if isinstance(panel, BundlePanel) else (0,)
        self.offsets = dict(zip(panel.units, starts, strict=True))
        self.base: Tensor | None = None
        self.parts: Tensor | None = None

    @property
    def stop(self) -> int:
        return self.start + self.panel.numel

    def own(self, weights: Tensor) -> Tensor:
        """(R T M …) -> (R T U …), the weights of this panel's units."""
        m = self.panel.units[0]
        return weights[:, :, m : m + 1] if len(self.units) == 1 else weights.index_select(2, self.units)

    def scatter(self, full: Tensor, own: Tensor) -> None:
        """(R T U K) into its columns of (R T M K)."""
        full.index_copy_(2, self.units, own)

    def gathered(self, grads: Mapping[str, Tensor], blocks: BlockTable, like: Tensor) -> Tensor:
        """∂L/∂θ of this panel's units, flat, (R n); a view wherever the numbers already lie that way."""
        runs = like.shape[0]
        if isinstance(grads, BlockBuffers) and grads.flat.dtype == like.dtype:
            return grads.flat.view(runs, -1)[:, self.start : self.stop]
        if not isinstance(self.panel, BundlePanel):
            return grads[blocks[self.panel.units[0]].name].reshape(runs, -1).to(like.dtype)
        g = like.new_zeros(runs, self.panel.numel)
        places = [g[:, at : at + blocks[m].numel] for m, at in self.offsets.items()]
        torch._foreach_copy_(places, [grads[blocks[m].name].reshape(runs, -1) for m in self.offsets])
        return g


def _place(homes: list[_Home]) -> int:
    """Give each panel its start in the arena; how long the arena is."""
    at = 0
    for home in homes:
        home.start = at
        at = home.stop + -home.stop % _ALIGN
    return at


def _widest(theta0: Mapping[str, Tensor]) -> torch.dtype:
    dtypes = {tensor.dtype for tensor in theta0.values()}
    widest = max(dtypes, key=lambda dtype: torch.finfo(dtype).bits)
    if len(dtypes) > 1:
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise BankError(f"the base model mixes {names}. Convert it to one dtype, for example with .float().")
    return widest


def _matching(theta0: Mapping[str, Tensor], bank: TaskVectorBank) -> dict[str, Tensor]:
    """The base's blocks in the bank's order, after checking that there is one of the right shape for each."""
    problems = [f"{block.name} is missing" for block in bank.blocks if block.name not in theta0]
    problems += [
        f"{block.name} is {tuple(theta0[block.name].shape)}, needs {block.shape}"
        for block in bank.blocks
        if block.name in theta0 and tuple(theta0[block.name].shape) != block.shape
    ]
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise BankError(
            f"the base model does not fit the bank: {', '.join(problems[:5])}{more}. "
            "Open the model that the bank was made for."
        )
    devices = {theta0[name].device for name in bank.blocks.names}
    if devices != {bank.device}:
        raise BankError(
            f"the bank is on {bank.device} but the base model on {', '.join(sorted(map(str, devices)))}. "
            "Move one with .to(device)."
        )
    return {name: theta0[name].detach() for name in bank.blocks.names}
