"""How far each task vector moves each block, ‖λ τ‖, and how alike the vectors of a bank are.

    c[t, m] = ‖λ[t, m] τ[t, m]‖                      contributions
    cos(τ0, τ1) = ⟨τ0, τ1⟩ / (‖τ0‖ ‖τ1‖)              similarities

    moved = contributions(recipe.coefficients, bank)
    moved.by_layer[0], moved.top(3)                  # root of the sum of squares; the vectors that move most
    similarities(bank).in_order().tasks              # similar vectors next to each other

A λ says little alone: a vector may be long in one block and hardly there in another. Contributions add up as
squares (c² of a layer is the sum over its blocks), and a share is of all squares together. They do not say
how far the model moves: vectors may pull against each other. Numbers are float64, so that no λ of a recipe by
a stranger is too large to be squared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import BlockTable
from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.errors import BankError, unknown_name

__all__ = ["Contributions", "Similarities", "TaskShare", "contributions", "similarities"]


class TaskShare(NamedTuple):
    """What one task adds: a length, and its share of all squared lengths."""

    task: str
    length: float
    share: float


@dataclass(frozen=True, eq=False)
class Contributions:
    """‖λ τ‖ for every task and block, on the CPU, and its sums over layers, kinds and tasks."""

    values: Float[Tensor, "T M"]
    tasks: tuple[str, ...]
    blocks: BlockTable

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of the blocks, from the first on."""
        return tuple(sorted({block.layer for block in self.blocks}))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the blocks, in the order of the tower."""
        return tuple(dict.fromkeys(block.kind for block in self.blocks))

    @cached_property
    def by_task(self) -> Float[Tensor, " T"]:
        """How far each task moves the whole tower."""
        return self.values.square().sum(1).sqrt()

    @cached_property
    def by_layer(self) -> Float[Tensor, "T layers"]:
        """How far each task moves each of `layers`."""
        return _root_sum_squares(self.values, [self.layers.index(block.layer) for block in self.blocks])

    @cached_property
    def by_kind(self) -> Float[Tensor, "T kinds"]:
        """How far each task moves each of `kinds`."""
        return _root_sum_squares(self.values, [self.kinds.index(block.kind) for block in self.blocks])

    def top(self, k: int | None = None) -> list[TaskShare]:
        """The `k` tasks that move most (all of them, if not given), the first the most."""
        squares = self.by_task.square()
        shares = squares / squares.sum().clamp_min(torch.finfo(torch.float64).tiny)
        order = shares.argsort(descending=True, stable=True).tolist()
        return [TaskShare(self.tasks[t], self.by_task[t].item(), shares[t].item()) for t in order[:k]]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON types: tasks from the top, and their lengths by layer, kind and block."""
        shares = [(self.tasks.index(share.task), share) for share in self.top()]
        return {
            "layers": list(self.layers),
            "kinds": list(self.kinds),
            "blocks": list(self.blocks.names),
            "tasks": [
                {
                    **share._asdict(),
                    "by_layer": self.by_layer[t].tolist(),
                    "by_kind": self.by_kind[t].tolist(),
                    "by_block": self.values[t].tolist(),
                }
                for t, share in shares
            ],
        }

    def __repr__(self) -> str:
        return f"Contributions({len(self.tasks)} tasks × {len(self.blocks)} blocks)"


def contributions(coefficients: Coefficients, bank: TaskVectorBank) -> Contributions:
    """‖λ[t, m] τ[t, m]‖ of the coefficients' tasks, of which the bank may have more.

    Needs only the bank's `block_norms`, which are computed once. With λ[t, m, k] for K partitions of a block
    their root mean square counts: a random split leaves about 1/K of a block's squared norm in each. Of a
    block too small for K only the partitions that it fills count.
    """
    if coefficients.blocks.fingerprint != bank.blocks.fingerprint:
        raise BankError(
            f"the coefficients are for {len(coefficients.blocks)} blocks and the bank has "
            f"{len(bank.blocks)} others. Use the bank that they were learned on."
        )
    missing = [task for task in coefficients.tasks if task not in bank.tasks]
    if missing:
        raise BankError(unknown_name("task", missing[0], bank.tasks))
    norms = bank.block_norms[[bank.tasks.index(task) for task in coefficients.tasks]]
    if not bool(torch.isfinite(norms).all()):
        raise BankError("the bank holds NaN or infinity. `atlas bank verify FILE` says where.")
    table = coefficients.table.detach().cpu().double().abs()  # (T M) or (T M K)
    sizes = table if table.dim() == 2 else _root_mean_square(table, coefficients)
    return Contributions(sizes * norms, coefficients.tasks, bank.blocks)


def _root_mean_square(table: Float[Tensor, "T M K"], coefficients: Coefficients) -> Float[Tensor, "T M"]:
    """The root mean square of λ over the partitions that each block fills, which come first."""
    layout = coefficients.layout
    filled = table.new_tensor([min(layout.partitions, layout.unit_count(b)) for b in coefficients.blocks])
    is_filled = torch.arange(layout.partitions) < filled.unsqueeze(1)  # (M K)
    return ((table.square() * is_filled).sum(-1) / filled).sqrt()


def _root_sum_squares(values: Float[Tensor, "T M"], groups: Sequence[int]) -> Float[Tensor, "T groups"]:
    """The root of the sum of squares over the blocks of each group; `groups` gives each block's group."""
    zeros = values.new_zeros(len(values), max(groups) + 1)
    return zeros.index_add_(1, torch.tensor(groups), values.square()).sqrt()


@dataclass(frozen=True, eq=False)
class Similarities:
    """The cosine of every two task vectors, in float64 on the CPU."""

    values: Float[Tensor, "T T"]
    tasks: tuple[str, ...]

    def in_order(self) -> Similarities:
        """The same, sorted: first the vector most like all others, then always the one most like the last."""
        left = list(range(len(self.tasks)))
        order = [max(left, key=lambda t: float(self.values[t].sum()))]
        while len(order) < len(self.tasks):
            left.remove(order[-1])
            order.append(max(left, key=lambda t: float(self.values[order[-1], t])))
        return Similarities(self.values[order][:, order], tuple(self.tasks[t] for t in order))

    def __repr__(self) -> str:
        return f"Similarities({len(self.tasks)} tasks)"


def similarities(bank: TaskVectorBank) -> Similarities:
    """The cosine of every two vectors of a bank, which is read once; 0 for a vector of zeros."""
    gram = torch.zeros(len(bank), len(bank), dtype=torch.float64)  # (T T)
    for panel in bank.iter_panels():
        gram += panel.gram().double().cpu()
    norms = gram.diagonal().clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    return Similarities(gram / norms.outer(norms), bank.tasks)
