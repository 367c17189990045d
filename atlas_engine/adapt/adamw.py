"""AdamW over R runs side by side: the update, the values being learned, and the best values so far.

The learned tensors are small (a few thousand coefficients), so an update makes new tensors and never writes
to old ones. All arithmetic is elementwise, so runs that share a tensor (R …) do not influence each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from atlas_engine.adapt.trainable import TrainableTensor
from atlas_engine.errors import ConfigError

__all__ = ["AdamState", "BestValues", "LearnedValues", "adamw", "keep_runs", "per_run_norm", "unit_norm"]

BETA_MEAN, BETA_SQUARE, EPSILON = 0.9, 0.999, 1e-8
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class AdamState:
    """Running moments of the gradient of one tensor."""

    mean: Float[Tensor, "R ..."]
    square: Float[Tensor, "R ..."]
    count: int = 0

    @classmethod
    def zero(cls, value: Tensor) -> AdamState:
        """The state before the first step."""
        return cls(torch.zeros_like(value), torch.zeros_like(value))


def adamw(
    value: Float[Tensor, "R ..."],
    grad: Float[Tensor, "R ..."],
    state: AdamState,
    *,
    lr: float,
    weight_decay: float,
) -> tuple[Float[Tensor, "R ..."], AdamState]:
    """The next value and state: x ← x (1 − lr·wd) − lr · m̂ / (√v̂ + ε), decay decoupled from the gradient.

    The decay pulls coefficients to zero, which is zero-shot. The first step has length lr whatever the
    gradient: x = 1, g = 5, lr = 0.1 and wd = 0 give 0.9.
    """
    count = state.count + 1
    mean = torch.lerp(state.mean, grad, 1.0 - BETA_MEAN)
    square = torch.lerp(state.square, grad.square(), 1.0 - BETA_SQUARE)
    mean_hat = mean / (1.0 - BETA_MEAN**count)
    square_hat = square / (1.0 - BETA_SQUARE**count)
    moved = value * (1.0 - lr * weight_decay) - lr * mean_hat / (square_hat.sqrt() + EPSILON)
    return moved, AdamState(mean, square, count)


def per_run_norm(grad: Float[Tensor, "R ..."]) -> Float[Tensor, " R"]:
    """The length of each run's gradient."""
    norms: Tensor = torch.linalg.vector_norm(grad.flatten(1), dim=1)
    return norms


def unit_norm(grad: Float[Tensor, "R ..."]) -> Float[Tensor, "R ..."]:
    """Each run's gradient scaled to length 1; a gradient of zero stays zero.

    The paper's code clips the gradient while it is still scaled up for half precision, which has this effect.
    """
    norm = per_run_norm(grad).reshape(-1, *[1] * (grad.ndim - 1))
    return grad / torch.where(norm > 0, norm, torch.ones_like(norm))


def keep_runs(
    mask: Bool[Tensor, " R"], new: Float[Tensor, "R ..."], old: Float[Tensor, "R ..."]
) -> Float[Tensor, "R ..."]:
    """`new` for the runs where `mask` is true, `old` for the others."""
    return torch.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old)


class LearnedValues:
    """The tensors being learned, by name, with the AdamW state of each."""

    def __init__(
        self, tensors: Mapping[str, TrainableTensor], *, lr: float, weight_decay: float, normalise: bool
    ) -> None:
        """The settings apply to tensors that have none of their own."""
        self._tensors = dict(tensors)
        self._lr, self._weight_decay, self._normalise = lr, weight_decay, normalise
        self.values: Mapping[str, Tensor] = {name: t.start.detach().clone() for name, t in tensors.items()}
        self._states = {name: AdamState.zero(value) for name, value in self.values.items()}
        counts = {value.shape[0] for value in self.values.values()}
        if len(counts) != 1:
            raise ConfigError(
                f"the tensors to learn have {sorted(counts)} runs. Give every tensor the same R."
            )
        (self.runs,) = counts
        self.device = next(iter(self.values.values())).device

    def update(self, grads: Mapping[str, Tensor], *, lr_factor: float, alive: Sequence[bool]) -> None:
        """Take one AdamW step on every value; runs that have ended keep theirs."""
        mask = torch.tensor(alive, device=self.device)
        values = {}
        for name, tensor in self._tensors.items():
            normalise = _own_or_default(tensor.normalise, self._normalise)
            moved, self._states[name] = adamw(
                self.values[name],
                unit_norm(grads[name]) if normalise else grads[name],
                self._states[name],
                lr=self._lr * tensor.lr_scale * lr_factor,
                weight_decay=_own_or_default(tensor.weight_decay, self._weight_decay),
            )
            values[name] = keep_runs(mask, moved, self.values[name])
        self.values = values


class BestValues:
    """The values with the highest score so far, run by run. A tie keeps the earlier ones."""

    def __init__(self, start: Mapping[str, Tensor], *, runs: int) -> None:
        self.scores = [-math.inf] * runs
        self.values = dict(start)

    def offer(
        self, scores: Sequence[float] | None, values: Mapping[str, Tensor], alive: Sequence[bool]
    ) -> None:
        """Take the values of the runs whose score is higher than before."""
        if scores is None:
            return
        better = [
            is_alive and new > old for is_alive, new, old in zip(alive, scores, self.scores, strict=True)
        ]
        self.scores = [
            new if is_better else old for is_better, new, old in zip(better, scores, self.scores, strict=True)
        ]
        mask = torch.tensor(better, device=next(iter(values.values())).device)
        self.values = {name: keep_runs(mask, value, self.values[name]) for name, value in values.items()}


def _own_or_default(own: Value | None, default: Value) -> Value:
    return default if own is None else own
