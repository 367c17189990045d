"""Low-rank differences of a tower's matrices, as something to train: LoRA.

    θ_m = θ0_m + U_m V_m,    U (rows r) from zero, V (r cols) at random          (Hu et al., ICLR 2022)

    plan = plan_low_rank(blocks, parameters=4560)       # the highest rank within as many numbers
    trainable = TrainableLowRank(tower, plan, head, logit_scale=100.0, lr=0.2, seed=0)

A matrix whose rank cannot exceed r is learned whole, so a plan without a rank is plain fine-tuning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import normalize

from atlas_engine.adapt.trainable import Forward, TrainableTensor
from atlas_engine.bank.blocks import Block, BlockTable
from atlas_engine.compose.encoder import cosine_logits
from atlas_engine.errors import EvalError
from atlas_engine.objectives.base import LogitsFn
from atlas_engine.runtime import generator

__all__ = ["LowRankPlan", "TrainableLowRank", "plan_full_rank", "plan_low_rank"]

U, V = "#u", "#v"
FACTORS_LR, WHOLE_LR = 2e-2, 1e-3
"""Of the first step, in a few dozen. On a set of the bank 0.02 was the best of 0.002, 0.006 and 0.02 for
factors; for whole matrices 0.0003 to 0.003 did about the same."""


@dataclass(frozen=True)
class LowRankPlan:
    """Which matrices learn a difference, and of what rank (None: of any)."""

    blocks: tuple[Block, ...]
    rank: int | None

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(_size(block, self.rank) for block in self.blocks)

    @property
    def lr(self) -> float:
        """The learning rate of the first step."""
        return WHOLE_LR if self.rank is None else FACTORS_LR


def plan_low_rank(blocks: BlockTable, *, parameters: int) -> LowRankPlan:
    """All matrices at the highest rank that stays within `parameters` numbers.

    Where rank 1 of all is too much, rank 1 of the last matrices that fit, and at least of the very last: no
    low rank is smaller than that.
    """
    matrices = _matrices(blocks)
    most = max(min(_sides(block)) for block in matrices)
    fitting = [r for r in range(1, most) if LowRankPlan(matrices, r).parameters <= parameters]
    if fitting:
        return LowRankPlan(matrices, fitting[-1])
    last = next(n for n in range(len(matrices), 0, -1) if n == 1 or _fits(matrices[-n:], parameters))
    return LowRankPlan(matrices[-last:], 1)


def plan_full_rank(blocks: BlockTable) -> LowRankPlan:
    """Every matrix, without a bound on the rank: fine-tuning."""
    return LowRankPlan(_matrices(blocks), None)


class TrainableLowRank:
    """The factors of a plan's matrices, under a frozen head (C D)."""

    def __init__(
        self, tower: nn.Module, plan: LowRankPlan, head: Tensor, *, logit_scale: float, lr: float, seed: int
    ) -> None:
        """`lr` is the learning rate of the loop; the tensors' `lr_scale` turns it into the plan's."""
        self._tower, self._plan, self._head, self._logit_scale = tower, plan, head, logit_scale
        self._theta0 = {name: weights.detach() for name, weights in tower.named_parameters()}
        self._lr_scale = plan.lr / lr if lr else 1.0
        draw = generator(seed)
        self._start = {name: leaf for block in plan.blocks for name, leaf in self._leaves(block, draw)}

    @property
    def tensors_to_learn(self) -> Mapping[str, TrainableTensor]:
        """U and V of each matrix, or its difference whole; each (1 …)."""
        return {
            name: TrainableTensor(leaf.unsqueeze(0), lr_scale=self._lr_scale)
            for name, leaf in self._start.items()
        }

    def at(self, values: Mapping[str, Tensor]) -> Forward:
        """The tower at θ0 + U V, for one run."""
        if any(len(value) != 1 for value in values.values()):
            raise EvalError("low-rank differences are learned one run at a time. Give each tensor R = 1.")
        return _LowRankForward(self, {name: value[0] for name, value in values.items()})

    def logits(self, leaves: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """(B …) -> (B C), differentiable in the leaves."""
        theta = {
            block.name: self._theta0[block.name] + _difference(block, leaves) for block in self._plan.blocks
        }
        features = functional_call(self._tower, {**self._theta0, **theta}, (images,))
        return cosine_logits(normalize(features.float(), dim=-1), self._head, logit_scale=self._logit_scale)

    def _leaves(self, block: Block, draw: torch.Generator) -> list[tuple[str, Tensor]]:
        theta0, rank = self._theta0[block.name], self._plan.rank
        rows, cols = _sides(block)
        if rank is None or min(rows, cols) <= rank:
            return [(block.name, torch.zeros_like(theta0))]
        v = (torch.randn(rank, cols, generator=draw) / cols**0.5).to(theta0)
        return [(block.name + U, theta0.new_zeros(rows, rank)), (block.name + V, v)]


class _LowRankForward:
    def __init__(self, trainable: TrainableLowRank, values: Mapping[str, Tensor]) -> None:
        self._trainable = trainable
        self._leaves = {name: value.detach().clone().requires_grad_() for name, value in values.items()}

    def logits_fn(self, run: int) -> LogitsFn:  # noqa: ARG002 - there is one
        return lambda images: self._trainable.logits(self._leaves, images)

    def gradients(self) -> Mapping[str, Tensor]:
        return {
            name: (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).unsqueeze(0)
            for name, leaf in self._leaves.items()
        }


def _difference(block: Block, leaves: Mapping[str, Tensor]) -> Tensor:
    if block.name in leaves:
        return leaves[block.name]
    return (leaves[block.name + U] @ leaves[block.name + V]).view(block.shape)  # (rows r) @ (r cols)


def _matrices(blocks: BlockTable) -> tuple[Block, ...]:
    found = tuple(block for block in blocks if block.is_matrix)
    if not found:
        raise EvalError("no matrix is among the weights that learn. Let a larger share of the tower learn.")
    return found


def _sides(block: Block) -> tuple[int, int]:
    return block.shape[0], block.numel // block.shape[0]


def _size(block: Block, rank: int | None) -> int:
    rows, cols = _sides(block)
    return block.numel if rank is None or min(rows, cols) <= rank else rank * (rows + cols)


def _fits(blocks: tuple[Block, ...], parameters: int) -> bool:
    return LowRankPlan(blocks, 1).parameters <= parameters
