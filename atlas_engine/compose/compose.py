"""θ(λ) and ∂L/∂λ: the two times an optimiser step reads the bank.

    θ(λ)_m       = θ0_m + Σ_t λ[t, m] τ[t, m]          compose
    ∂L/∂λ[t, m]  = ⟨∂L/∂θ_m, τ[t, m]⟩                   gradient           (aTLAS, arXiv 2407.02880)

Neither keeps an autograd graph over the bank: compose once per optimiser step, let every view and micro-batch
share θ, add up ∂L/∂θ, and call `gradient` once. Both read the bank once however many runs R (folds, seeds,
users) are batched: λ (R, …) gives weights (R, *shape).

    composer = Composer(dict(model.visual.named_parameters()), bank)
    lam = composer.initial()
    theta = composer.compose(lam)                    # a dict of tensors, all views into theta.flat
    grad = composer.gradient(grads)                  # of the shape of lam

λ = 0 gives back θ0 bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import BlockTable
from atlas_engine.bank.panels import BundlePanel, Panel
from atlas_engine.compose.coefficients import Layout
from atlas_engine.errors import BankError, ConfigError

__all__ = ["BlockBuffers", "Composer"]

_ALIGN = 64
"""Panels begin at multiples of this many numbers, which suits vector units and matrix kernels."""

_BYTE_VALUES = 256


class BlockBuffers(dict[str, Tensor]):
    """All blocks of a tower by name, each a view into one flat tensor `flat`: (P') or, for R runs, (R P').

    P' is P plus the padding between blocks.
    """

    def __init__(self, views: Mapping[str, Tensor], flat: Float[Tensor, "*R P"]) -> None:
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
        self.theta0 = _check_base(theta0, bank)
        self.shape = self.layout.shape(len(bank.tasks), bank.blocks)
        self._dtype = _common_dtype(self.theta0)
        self._sum_dtype = torch.promote_types(self._dtype, torch.float32)
        self._spans, self._flat_numel = _lay_out(bank)
        self._offsets = {m: span.start + at for span in self._spans for m, at in span.offsets.items()}
        for span in self._spans:
            span.base = self._bundle_base(span)
        self._negative_zeros = self._find_negative_zeros()

    def initial(self, value: float = 0.0) -> Float[Tensor, "T ..."]:
        """Free coefficients at their start, on the bank's device."""
        return self.layout.initial(len(self.bank.tasks), self.blocks, value=value).to(self.bank.device)

    def buffers(self, runs: int | None = None) -> BlockBuffers:
        """Buffers for θ or for ∂L/∂θ, filled with zeros: one flat tensor with a view per block.

        Set each leaf's `.grad` to a view, and autograd adds into the flat tensor, which `gradient` reads.
        """
        lead = () if runs is None else (runs,)
        flat = torch.zeros(*lead, self._flat_numel, dtype=self._dtype, device=self.bank.device)
        starts = [(self._offsets[m], block) for m, block in enumerate(self.blocks)]
        views = {b.name: flat[..., at : at + b.numel].view((*lead, *b.shape)) for at, b in starts}
        return BlockBuffers(views, flat)

    @torch.no_grad()
    def compose(self, lam: Float[Tensor, "*shape"], *, into: BlockBuffers | None = None) -> BlockBuffers:
        """θ(λ) in new buffers, or in those given, for free coefficients λ (*shape) or (R, *shape)."""
        is_batched = self._is_batched(lam)
        buffers = self.buffers(lam.shape[0] if is_batched else None) if into is None else into
        flat = buffers.flat if is_batched else buffers.flat.unsqueeze(0)  # (R P')
        weights = self._weights(lam if is_batched else lam.unsqueeze(0))  # (R T M) or (R T M K)
        if flat.dim() != 2 or flat.shape != (len(weights), self._flat_numel):
            raise ConfigError(
                f"these buffers are {tuple(buffers.flat.shape)} but {len(weights)} run(s) of "
                f"{self._flat_numel} numbers are composed. Make them with buffers(runs)."
            )
        with torch.autocast(flat.device.type, enabled=False):
            for span in self._spans:
                region = flat[:, span.start : span.stop]
                # a base in half precision is summed in float32 and rounded once
                theta = region if region.dtype == self._sum_dtype else region.to(self._sum_dtype)
                self._combine(span, weights, theta)
                if theta is not region:
                    region.copy_(theta)
            self._restore_negative_zeros(flat)
        return buffers

    @torch.no_grad()
    def gradient(self, grads: Mapping[str, Tensor]) -> Float[Tensor, "*shape"]:
        """∂L/∂λ for the free coefficients, of the shape of λ, from ∂L/∂θ by block name, of one run or of R.

        Gradients in `BlockBuffers` are read where they are; others are copied panel by panel where needed.
        """
        missing = [name for name in self.theta0 if name not in grads]
        if missing:
            raise BankError(f"no gradient was given for block '{missing[0]}' ({len(missing)} are missing).")
        first = self.blocks[0]
        is_batched = grads[first.name].dim() > len(first.shape)
        runs = grads[first.name].shape[0] if is_batched else 1

        # inner products with every task of the panels, (R T M K)
        K, M, T = self.layout.partitions, len(self.blocks), self.bank.panels[0].task_count
        full = torch.zeros(runs, T, M, K, dtype=self._sum_dtype, device=self.bank.device)
        with torch.autocast(full.device.type, enabled=False):
            for span in self._spans:
                g = span.gather(grads, self.blocks, runs=runs, dtype=self._sum_dtype)
                full.index_copy_(2, span.block_index, self._inner(span, g))

        # the bank's own tasks, then the free coefficients
        if self.bank.row_index is not None:
            full = full.index_select(1, self.bank.row_index)
        free = self.layout.reduce(full if K > 1 else full.squeeze(3), self.blocks)
        return free if is_batched else free.squeeze(0)

    def _is_batched(self, lam: Tensor) -> bool:
        """Whether λ is (R, *shape); raises if it is neither that nor (*shape)."""
        lead = lam.dim() - len(self.shape)
        if tuple(lam.shape[max(lead, 0) :]) != self.shape or lead not in (0, 1):
            raise ConfigError(
                f"coefficients of shape {tuple(lam.shape)} do not fit. "
                f"Pass {self.shape}, or (R, {', '.join(map(str, self.shape))})."
            )
        return lead == 1

    def _weights(self, lam: Float[Tensor, "R ..."]) -> Float[Tensor, "R T M *K"]:
        """λ over all blocks and all tasks of the panels, with zeros for tasks that are not the bank's."""
        full = self.layout.expand(lam.detach(), self.blocks).to(self.bank.device, self._sum_dtype)
        if self.bank.row_index is None:
            return full
        shape = (full.shape[0], self.bank.panels[0].task_count, *full.shape[2:])
        return full.new_zeros(shape).index_copy_(1, self.bank.row_index, full)

    def _combine(
        self, span: _PanelSpan, weights: Float[Tensor, "R T M *K"], theta: Float[Tensor, "R n"]
    ) -> None:
        """theta = θ0 + Σ_t weights τ, for the blocks of one panel."""
        own = span.select_weights(weights)  # (R T U) or (R T U K)
        start = span.base if span.base is not None else self._flat_base(span)
        if self.layout.partitions == 1:
            span.panel.combine(own, start=start, into=theta)
        elif self._is_split_by_rows(span):
            per_row = own[:, :, 0].index_select(2, self._partition_of(span))  # (R T K) -> (R T rows)
            span.panel.combine_rows(per_row.transpose(1, 2).contiguous(), start=start, into=theta)
        else:
            span.panel.combine_partitioned(
                own.flatten(2), partition_of=self._partition_of(span), start=start, into=theta
            )

    def _inner(self, span: _PanelSpan, g: Float[Tensor, "R n"]) -> Float[Tensor, "R T U K"]:
        """⟨τ, g⟩ per task, block and partition of one panel."""
        K = self.layout.partitions
        if K == 1:
            return span.panel.inner(g).unsqueeze(-1)
        if self._is_split_by_rows(span):
            per_row = span.panel.inner_rows(g, rows=len(self._partition_of(span)))  # (R rows T)
            return self._sum_rows(span, per_row).transpose(1, 2).unsqueeze(2)  # (R K T) -> (R T 1 K)
        count = len(span.panel.block_indices) * K
        inner = span.panel.inner_partitioned(g, partition_of=self._partition_of(span), count=count)
        return inner.view(*inner.shape[:2], -1, K)

    def _flat_base(self, span: _PanelSpan) -> Float[Tensor, " n"]:
        return self.theta0[self.blocks[span.panel.block_indices[0]].name].reshape(-1).to(self._sum_dtype)

    def _bundle_base(self, span: _PanelSpan) -> Float[Tensor, " n"] | None:
        """θ0 of the bundled small blocks in the bundle's order; None for a large block, read where it is."""
        if not isinstance(span.panel, BundlePanel):
            return None
        base = torch.zeros(span.panel.numel, dtype=self._sum_dtype, device=self.bank.device)
        for m, at in span.offsets.items():
            block = self.blocks[m]
            base[at : at + block.numel] = self.theta0[block.name].reshape(-1)
        return base

    def _is_split_by_rows(self, span: _PanelSpan) -> bool:
        """Whether a panel is computed row by row; the bundle of small blocks never is."""
        return self.layout.split_by == "rows" and not isinstance(span.panel, BundlePanel)

    def _partition_of(self, span: _PanelSpan) -> Integer[Tensor, " n"]:
        """The partition of each number of a panel: 0 … K − 1 in its first block, K … 2K − 1 in the next, …

        Of each row instead, (rows), where the panel is computed row by row.
        """
        if span.partition_of is not None:
            return span.partition_of
        if self._is_split_by_rows(span):
            index = self.layout.split(self.blocks[span.panel.block_indices[0]].rows)
        else:
            # a byte each where that is enough, because there are as many as weights
            narrow = len(span.offsets) * self.layout.partitions <= _BYTE_VALUES
            index = torch.zeros(span.panel.numel, dtype=torch.uint8 if narrow else torch.int32)
            for u, (m, at) in enumerate(span.offsets.items()):
                block = self.blocks[m]
                index[at : at + block.numel] = self.layout.partition_of(block) + u * self.layout.partitions
        span.partition_of = index.to(self.bank.device)
        return span.partition_of

    def _sum_rows(self, span: _PanelSpan, per_row: Float[Tensor, "R rows T"]) -> Float[Tensor, "R K T"]:
        """Sums over the rows of each partition, always in the same order."""
        if span.rows_of is None:
            span.rows_of = _members(self._partition_of(span), self.layout.partitions)
        runs, _, T = per_row.shape
        padded = torch.cat([per_row, per_row.new_zeros(runs, 1, T)], dim=1)
        return padded.index_select(1, span.rows_of.flatten()).view(runs, *span.rows_of.shape, T).sum(dim=2)

    def _find_negative_zeros(self) -> Int[Tensor, " count"] | None:
        """Where θ0 is −0.0: adding a zero would turn it to +0.0, and zero λ must change no bit."""
        found = [
            self._offsets[m] + torch.nonzero(flat.eq(0) & flat.signbit()).flatten()
            for m, flat in enumerate(self.theta0[block.name].reshape(-1) for block in self.blocks)
        ]
        index = torch.cat(found)
        return index if len(index) else None

    def _restore_negative_zeros(self, flat: Float[Tensor, "R P"]) -> None:
        if self._negative_zeros is not None:
            theta = flat.index_select(1, self._negative_zeros)
            flat.index_copy_(1, self._negative_zeros, torch.where(theta == 0, -0.0, theta))


class _PanelSpan:
    """One panel's place in the flat buffers, `start` to `stop`, and what is kept for it."""

    def __init__(self, panel: Panel, start: int, device: torch.device) -> None:
        self.panel = panel
        self.start = start
        self.stop = start + panel.numel
        self.block_index = torch.tensor(panel.block_indices, device=device)  # (U)
        self.offsets = dict(zip(panel.block_indices, panel.offsets(), strict=True))
        self.base: Tensor | None = None
        self.partition_of: Tensor | None = None
        self.rows_of: Tensor | None = None  # (K most), the rows of each partition

    def select_weights(self, weights: Float[Tensor, "R T M *K"]) -> Float[Tensor, "R T U *K"]:
        """The weights of this panel's blocks."""
        m = self.panel.block_indices[0]
        if len(self.panel.block_indices) == 1:
            return weights[:, :, m : m + 1]
        return weights.index_select(2, self.block_index)

    def gather(
        self, grads: Mapping[str, Tensor], blocks: BlockTable, *, runs: int, dtype: torch.dtype
    ) -> Float[Tensor, "R n"]:
        """∂L/∂θ of this panel's blocks; a view where the numbers are already stored that way."""
        if isinstance(grads, BlockBuffers) and grads.flat.dtype == dtype:
            return grads.flat.view(runs, -1)[:, self.start : self.stop]
        if not isinstance(self.panel, BundlePanel):
            return grads[blocks[self.panel.block_indices[0]].name].reshape(runs, -1).to(dtype)
        g = torch.zeros(runs, self.panel.numel, dtype=dtype, device=self.panel.device)
        places = [g[:, at : at + blocks[m].numel] for m, at in self.offsets.items()]
        torch._foreach_copy_(places, [grads[blocks[m].name].reshape(runs, -1) for m in self.offsets])
        return g


def _lay_out(bank: TaskVectorBank) -> tuple[list[_PanelSpan], int]:
    """A place in the flat buffers for each panel, and how many numbers that takes in all."""
    spans, start = [], 0
    for panel in bank.panels:
        span = _PanelSpan(panel, start, bank.device)
        spans.append(span)
        start = span.stop + -span.stop % _ALIGN
    return spans, start


def _members(partition_of: Integer[Tensor, " units"], partitions: int) -> Int[Tensor, "K most"]:
    """Which units each partition has, in order; filled up with the number of units, which is none of them."""
    units = len(partition_of)
    counts = torch.bincount(partition_of, minlength=partitions)  # (K)
    in_order = partition_of.argsort(stable=True)
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)  # where the own partition begins
    place = torch.arange(units, device=counts.device) - first
    members = partition_of.new_full((partitions, int(counts.max())), units)
    members[partition_of[in_order].long(), place] = in_order.to(members.dtype)
    return members


def _common_dtype(theta0: Mapping[str, Tensor]) -> torch.dtype:
    """The dtype of all blocks of the base; raises if they differ."""
    dtypes = {tensor.dtype for tensor in theta0.values()}
    if len(dtypes) > 1:
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise BankError(f"the base model mixes {names}. Convert it to one dtype, for example with .float().")
    return dtypes.pop()


def _check_base(theta0: Mapping[str, Tensor], bank: TaskVectorBank) -> dict[str, Tensor]:
    """The base's blocks in the bank's order; raises unless each is there, of the right shape and device."""
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
