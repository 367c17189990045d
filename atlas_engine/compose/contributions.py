"""How far each task vector moves each block: the length of λ τ. Knows nothing of models or of figures.

    moved = contributions(recipe.coefficients, bank)
    moved.by_layer[0], moved.top(3)                  # root of the sum of squares; the donors that move most

    c[t, m] = ‖λ[t, m] τ[t, m]‖

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

    values: Tensor  # (T M)
    tasks: tuple[str, ...]
    blocks: BlockTable

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that there are, from the first on."""
        return tuple(sorted({block.layer for block in self.blocks}))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of block that there are, in the order of the tower."""
        return tuple(dict.fromkeys(block.kind for block in self.blocks))

    @cached_property
    def by_task(self) -> Tensor:
        """How far each task moves the whole tower, (T)."""
        return self.values.square().sum(1).sqrt()

    @cached_property
    def by_layer(self) -> Tensor:
        """How far each task moves each of `layers`, (T layers)."""
        return _summed(self.values, [self.layers.index(block.layer) for block in self.blocks])

    @cached_property
    def by_kind(self) -> Tensor:
        """How far each task moves each of `kinds`, (T kinds)."""
        return _summed(self.values, [self.kinds.index(block.kind) for block in self.blocks])

    def top(self, k: int | None = None) -> list[TaskShare]:
        """The `k` tasks that move most (all of them, if not given), the first the most."""
        squares = self.by_task.square()
        shares = squares / squares.sum().clamp_min(torch.finfo(torch.float64).tiny)
        order = shares.argsort(descending=True, stable=True).tolist()
        return [TaskShare(self.tasks[t], self.by_task[t].item(), shares[t].item()) for t in order[:k]]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON types: tasks from the top, and their lengths by layer, kind and block."""
        rows = [(self.tasks.index(one.task), one) for one in self.top()]
        return {
            "layers": list(self.layers),
            "kinds": list(self.kinds),
            "blocks": list(self.blocks.names),
            "tasks": [
                {
                    **one._asdict(),
                    "by_layer": self.by_layer[t].tolist(),
                    "by_kind": self.by_kind[t].tolist(),
                    "by_block": self.values[t].tolist(),
                }
                for t, one in rows
            ],
        }

    def __repr__(self) -> str:
        return f"Contributions({len(self.tasks)} tasks × {len(self.blocks)} blocks)"


def contributions(coefficients: Coefficients, bank: TaskVectorBank) -> Contributions:
    """‖λ[t, m] τ[t, m]‖ of the coefficients' tasks, of which the bank may have more.

    Costs nothing but the bank's lengths, which are kept with it. With λ[t, m, k] for K parts of a block the
    root of their mean square counts: a random split leaves about 1/K of a block's squared length in each.
    """
    if coefficients.blocks.fingerprint != bank.blocks.fingerprint:
        raise BankError(
            f"the coefficients are for {len(coefficients.blocks)} blocks and the bank has "
            f"{len(bank.blocks)} others. Use the bank that they were learned on."
        )
    missing = [task for task in coefficients.tasks if task not in bank.tasks]
    if missing:
        raise BankError(unknown_name("task", missing[0], bank.tasks))
    lengths = bank.lengths[[bank.tasks.index(task) for task in coefficients.tasks]]
    if not bool(torch.isfinite(lengths).all()):
        raise BankError("the bank holds NaN or infinity. `atlas bank verify FILE` says where.")
    table = coefficients.table.detach().cpu().double().abs()  # (T M) or (T M K)
    sizes = table if table.dim() == 2 else table.square().mean(-1).sqrt()
    return Contributions(sizes * lengths, coefficients.tasks, bank.blocks)


def _summed(values: Tensor, groups: Sequence[int]) -> Tensor:
    """The root of the sum of squares over the columns of each group, (T M) -> (T groups)."""
    zeros = values.new_zeros(len(values), max(groups) + 1)
    return zeros.index_add_(1, torch.tensor(groups), values.square()).sqrt()


# ---- How alike the task vectors of a bank are: the cosine of every two. Knows nothing of models or of
# figures. alike = similarities(bank) alike.values[0, 1] # cos(τ0, τ1) = ⟨τ0, τ1⟩ / (‖τ0‖ ‖τ1‖) over all
# blocks alike.in_order().tasks # neighbours stand beside each other
@dataclass(frozen=True, eq=False)
class Similarities:
    """The cosine of every two task vectors, (T T) in float64 on the CPU."""

    values: Tensor
    tasks: tuple[str, ...]

    def in_order(self) -> Similarities:
        """The same from the vector that is likest to all others on, each followed by the one likest to it."""
        rest = list(range(len(self.tasks)))
        order = [max(rest, key=lambda t: float(self.values[t].sum()))]
        while len(order) < len(self.tasks):
            rest.remove(order[-1])
            order.append(max(rest, key=lambda t: float(self.values[order[-1], t])))
        return Similarities(self.values[order][:, order], tuple(self.tasks[t] for t in order))

    def __repr__(self) -> str:
        return f"Similarities({len(self.tasks)} tasks)"


def similarities(bank: TaskVectorBank) -> Similarities:
    """The cosines of a bank, which is read once. A vector of zeros is like no other: 0."""
    gram = torch.zeros(len(bank), len(bank), dtype=torch.float64)  # (T T)
    for panel in bank.parts():
        gram += panel.gram().sum(0).double().cpu()
    lengths = gram.diagonal().clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    return Similarities(gram / lengths.outer(lengths), bank.tasks)
