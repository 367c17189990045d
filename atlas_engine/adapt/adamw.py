"""AdamW as a pure function, over R runs at once. Knows nothing of losses or models.

The learned tensors are tiny (a few thousand coefficients), so every update makes new ones: whoever holds an
old value keeps it. All arithmetic is element by element, so runs that share a tensor (R ...) stay strangers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["AdamState", "adamw", "keep_runs", "per_run_norm", "unit_norm"]

BETA_MEAN, BETA_SQUARE, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True, eq=False)
class AdamState:
    """Running moments of the gradient of one tensor."""

    mean: Tensor  # (R ...)
    square: Tensor  # (R ...)
    count: int = 0

    @classmethod
    def zero(cls, value: Tensor) -> AdamState:
        """The state before the first step."""
        return cls(torch.zeros_like(value), torch.zeros_like(value))


def adamw(
    value: Tensor, grad: Tensor, state: AdamState, *, lr: float, weight_decay: float
) -> tuple[Tensor, AdamState]:
    """The next value and state: x ← x (1 − lr·wd) − lr · m̂ / (√v̂ + ε), decay decoupled from the gradient.

    The decay pulls coefficients towards zero, which is zero-shot. From x = 1, g = 5, lr = 0.1, wd = 0 the
    first step goes by lr, whatever g: x = 0.9.
    """
    count = state.count + 1
    mean = torch.lerp(state.mean, grad, 1.0 - BETA_MEAN)
    square = torch.lerp(state.square, grad.square(), 1.0 - BETA_SQUARE)
    mean_hat = mean / (1.0 - BETA_MEAN**count)
    square_hat = square / (1.0 - BETA_SQUARE**count)
    moved = value * (1.0 - lr * weight_decay) - lr * mean_hat / (square_hat.sqrt() + EPSILON)
    return moved, AdamState(mean, square, count)


def per_run_norm(grad: Tensor) -> Tensor:
    """(R ...) -> (R): the length of each run's gradient."""
    norms: Tensor = torch.linalg.vector_norm(grad.flatten(1), dim=1)
    return norms


def unit_norm(grad: Tensor) -> Tensor:
    """Each run's gradient with length 1, and a gradient of zero as it is.

    The paper's own loop clips a scaled half-precision gradient, which amounts to this; here it is on purpose.
    """
    norm = per_run_norm(grad).reshape(-1, *[1] * (grad.ndim - 1))
    return grad / torch.where(norm > 0, norm, torch.ones_like(norm))


def keep_runs(mask: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """``new`` for the runs where ``mask`` (R) is true, ``old`` for the rest."""
    return torch.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)
