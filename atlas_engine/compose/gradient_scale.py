"""A factor on the gradients inside a float16 tower, so that small ones do not vanish.

    scale = GradientScale()
    features = scale.enter(tower(images).float())      # the same numbers, whose gradient is multiplied
    loss(features).backward()
    grad = scale.leave(parameter.grad)                 # divided again

float16 has no numbers below 6e-8, and a tower's gradients are often smaller. The factor brings the largest
gradient that enters the tower to about `ENTRY`, which leaves room for sums over images and tokens up to
65504. It is a power of two, so that it rounds nothing. The first backward pass chooses it, because later
ones add to the same gradients. Heads and losses stand outside of the tower, in float32, and never see it.
"""

from __future__ import annotations

from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from atlas_engine.runtime import autocast_dtype

__all__ = ["ENTRY", "GradientScale"]

ENTRY = 16.0


class GradientScale:
    """The factor of one run: 1 unless its tower runs in float16."""

    def __init__(self) -> None:
        self._factor: Tensor | None = None  # on the device, so that nobody waits for it; 0 is not chosen yet

    def enter(
        self, features: Float[Tensor, "B D"], *, precision: torch.dtype | None = None
    ) -> Float[Tensor, "B D"]:
        """The same features, whose gradient is multiplied on its way into the tower.

        `precision` is that of the tower's autocast, by default the device's own.
        """
        if not features.requires_grad or (precision or autocast_dtype(features.device)) != torch.float16:
            return features
        if self._factor is None:
            self._factor = torch.zeros((), device=features.device)
        entered: Tensor = _Scaled.apply(features, self._factor)  # type: ignore[no-untyped-call]
        return entered

    def leave(self, grad: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """A gradient from inside the tower, divided by the factor."""
        return grad if self._factor is None else grad / torch.where(self._factor == 0, 1.0, self._factor)


class _Context(Protocol):
    """What the forward pass saves for the backward pass."""

    factor: Tensor


class _Scaled(torch.autograd.Function):
    """The identity; its backward pass multiplies by the factor, and chooses it where it is still 0."""

    @staticmethod
    def forward(ctx: _Context, features: Tensor, factor: Tensor) -> Tensor:
        ctx.factor = factor
        return features.view_as(features)

    @staticmethod
    def backward(ctx: _Context, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,), factor = grads, ctx.factor
        largest = grad.abs().amax()
        wanted = torch.exp2(torch.floor(torch.log2(ENTRY / largest))).clamp(max=2.0**60)
        # a gradient of 0 says nothing of those to come
        factor.copy_(torch.where((factor == 0) & (largest > 0), wanted, factor))
        return grad * factor, None
