"""What the loop tunes: named tensors, and logits at their values. Knows nothing of losses or optimisers.

Every tensor has a leading R: several runs (folds, seeds) learn side by side and read the bank once for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from atlas_engine.compose.encoder import ComposedEncoder, Composition
from atlas_engine.objectives.base import LogitsFn

__all__ = ["LAM", "ComposedSubject", "Forward", "Learnable", "Subject"]

LAM = "lam"
"""The name under which a subject holds the composition's coefficients."""


@dataclass(frozen=True, eq=False)
class Learnable:
    """A tensor to learn: where each run starts, and where it departs from the loop's settings."""

    start: Tensor  # (R ...)
    lr_scale: float = 1.0
    weight_decay: float | None = None
    normalise: bool | None = None


class Subject(Protocol):
    """Anything with tensors to learn that gives logits at their values."""

    @property
    def learnables(self) -> Mapping[str, Learnable]:
        """The tensors by name, all with the same R."""
        ...

    def at(self, values: Mapping[str, Tensor]) -> Forward:
        """The model at these values; made once per optimiser step."""
        ...


class Forward(Protocol):
    """A model at fixed values, shared by every view and micro-batch of one step."""

    def logits_fn(self, run: int) -> LogitsFn:
        """Images to logits, for one run. ``backward()`` on its results adds up until ``gradients()``."""
        ...

    def gradients(self) -> Mapping[str, Tensor]:
        """∂(sum of all that went backward) / ∂value, by name, each (R ...)."""
        ...


class ComposedSubject:
    """The coefficients λ of a composed image tower, under a frozen head."""

    def __init__(self, encoder: ComposedEncoder, head: Tensor, *, logit_scale: float, start: Tensor) -> None:
        """``head`` is (C D) with rows of length 1; ``start`` is R free coefficients, (R …)."""
        self._encoder, self._head, self._logit_scale = encoder, head, logit_scale
        self._start = start

    @property
    def learnables(self) -> Mapping[str, Learnable]:
        """λ alone."""
        return {LAM: Learnable(self._start)}

    def at(self, values: Mapping[str, Tensor]) -> Forward:
        """The tower at θ(λ); the bank is read here, once."""
        return _ComposedForward(self._encoder.at(values[LAM]), self._head, self._logit_scale)


class _ComposedForward:
    def __init__(self, composition: Composition, head: Tensor, logit_scale: float) -> None:
        self._composition, self._head, self._logit_scale = composition, head, logit_scale

    def logits_fn(self, run: int) -> LogitsFn:
        return lambda images: self._composition.logits(
            images, self._head, logit_scale=self._logit_scale, run=run
        )

    def gradients(self) -> Mapping[str, Tensor]:
        return {LAM: self._composition.gradient()}
