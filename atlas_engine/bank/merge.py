"""Several vectors merged without learning. Knows nothing of images or coefficients.

merged = ties(bank.select(["cars", "signs"]))            # one vector
TaskVectorBank.from_vectors([merged])                    # a bank of one, to scale as any other
shares_in_ties(bank)                                     # what each vector gives to it: their sum is `ties`
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.vector import TaskVector, VectorInfo
from atlas_engine.errors import BankError

__all__ = ["shares_in_ties", "ties"]


def ties(bank: TaskVectorBank, *, density: float = 0.2, name: str = "ties") -> TaskVector:
    """The vectors merged by TIES (NeurIPS 2023): trim, elect a sign, average those that agree.

    Of each vector only the share `density` of its largest numbers counts. Where vectors disagree about a
    number's sign, the side with the larger sum wins, and the mean is taken over that side alone:
    of 0.5, 0.3 and −0.6 it is 0.4.
    """
    merged = functools.reduce(lambda one, other: one + other, shares_in_ties(bank, density=density))
    return TaskVector(name, merged.blocks, bank.base, VectorInfo(dataset=" + ".join(bank.tasks)))


def shares_in_ties(bank: TaskVectorBank, *, density: float = 0.2) -> list[TaskVector]:
    """What each vector gives to the merged one, under its own name: of 0.5, 0.3 and −0.6, 0.25, 0.15 and 0.

    One coefficient for all of them is TIES, and coefficients of their own are more.
    """
    if not 0 < density <= 1:
        raise BankError(f"density={density} is out of range. It must be above 0 and at most 1.")
    least = _thresholds(bank, density)  # (T)
    blocks: list[dict[str, Tensor]] = [{} for _ in bank.tasks]
    for block in bank.blocks:
        tau = bank.vectors_of(block)  # (T n)
        for own, share in zip(blocks, _agreed(torch.where(tau.abs() >= least[:, None], tau, 0)), strict=True):
            own[block.name] = share.reshape(block.shape)
    return [
        TaskVector(task, own, bank.base, info)
        for task, own, info in zip(bank.tasks, blocks, bank.infos, strict=True)
    ]


def _agreed(tau: Tensor) -> Tensor:
    """(T n): those that are not 0 and have the sign of the sum, over how many they are."""
    side = torch.where(tau * tau.sum(0).sign() > 0, tau, 0)
    return side / (side != 0).sum(0).clamp(min=1)


def _thresholds(bank: TaskVectorBank, density: float) -> Tensor:
    """(T): the size that the wanted share of each vector's numbers reaches."""
    sizes = [bank.vectors_of(block).abs() for block in bank.blocks]
    count = sum(tau.shape[1] for tau in sizes)
    kept = max(1, math.ceil(density * count))
    rows = (torch.cat([tau[t] for tau in sizes]) for t in range(len(bank)))
    return torch.stack([row.kthvalue(count - kept + 1).values for row in rows])
