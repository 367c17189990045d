"""How alike the task vectors of a bank are: the cosine of every two. Knows nothing of models or of figures.

alike = similarities(bank)
alike.values[0, 1]                               # cos(τ0, τ1) = ⟨τ0, τ1⟩ / (‖τ0‖ ‖τ1‖) over all blocks
alike.in_order().tasks                           # neighbours stand beside each other
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank

__all__ = ["Similarities", "similarities"]


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
