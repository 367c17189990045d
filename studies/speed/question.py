"""What every formulation of a composition is asked, and the answer it must give. Knows none of them.

All of it is drawn from fixed seeds, so that a process of its own can ask itself the same question: no bank is
sent across.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.kernels import cpu
from studies.speed.tower import RandomTower, drawn_bank, drawn_like, weights_of

__all__ = ["BLOCK", "FORWARDS", "TASKS", "Answer", "Expected", "Question", "drawn_tower"]

TASKS = 8
FORWARDS = 2
"""Of the step that has several: two views of its images, or two micro-batches."""

BLOCK = "proj"
"""The block whose θ is looked at."""

ELEVEN_BITS = 5e-3
_FLOAT32 = 5e-5  # an ulp of a weight is 1e-5 of how far it moves

Answer = tuple[Tensor, ...]
"""θ of one block, and ∂L/∂λ (T M)."""


def drawn_tower(*, layers: int) -> RandomTower:
    """The tower whose weights every process draws alike."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # modules draw from the generator that all share
        return RandomTower(layers=layers).eval()


@dataclass(frozen=True)
class Question:
    """A base, a bank for it, coefficients, and the ∂L/∂θ that comes back from each forward of a step."""

    theta0: dict[str, Tensor]
    bank: TaskVectorBank
    lam: Tensor  # (T M)
    grads: tuple[dict[str, Tensor], ...]

    @classmethod
    def drawn(
        cls, tower: RandomTower, *, storage: str, tasks: int = TASKS, forwards: int = FORWARDS
    ) -> Question:
        """The question about random vectors in this storage."""
        theta0 = weights_of(tower)
        bank = drawn_bank(theta0, tasks=tasks, storage=storage)
        lam = 0.3 * torch.randn(tasks, len(theta0), generator=torch.Generator().manual_seed(2))
        return cls(theta0, bank, lam, tuple(drawn_like(theta0, seed=1 + v) for v in range(forwards)))


@dataclass(frozen=True)
class Expected:
    """The answer to a question, worked out block by block in the plainest way."""

    base: Tensor
    theta: Tensor
    grads: tuple[Tensor, ...]  # ∂L/∂λ (T M) of each forward
    tolerance: float

    @classmethod
    def of(cls, question: Question) -> Expected:
        """Worked out anew."""
        bank, lam = question.bank, question.lam[:, question.bank.blocks.index(BLOCK)]
        base = question.theta0[BLOCK].double().flatten()
        return cls(
            base=base,
            theta=base + lam.double() @ bank.vectors_of(BLOCK).double(),
            grads=tuple(_gradient(bank, grads) for grads in question.grads),
            tolerance=_FLOAT32 if cpu.is_available(bank.storage) else ELEVEN_BITS,
        )

    def is_met(self, answer: Answer, *, forwards: int = 1, tolerance: float | None = None) -> bool:
        """Whether both errors are below a fraction of the largest move and of the gradient's length."""
        theta, grad = answer
        expected = torch.stack(self.grads[:forwards]).sum(0)
        theta_error = (theta.flatten().double() - self.theta).abs().max() / (
            self.theta - self.base
        ).abs().max()
        grad_error = (grad - expected).norm() / expected.norm()
        allowed = self.tolerance if tolerance is None else tolerance
        return bool(theta_error < allowed and grad_error < allowed)


def _gradient(bank: TaskVectorBank, grads: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([bank.vectors_of(block) @ grads[block.name].flatten() for block in bank.blocks], dim=1)
