"""The naive formulation of composition, kept as the baseline and as the tests' second opinion.

A Python sum of `p * c` over vectors for every block, inside autograd, made anew at every forward: what one
writes first. It keeps a graph over the whole bank and reads it once per forward and once per backward.

All differences come first, then all weights, as in the paper's own code; block by block it would need less
memory and time.

A bank narrower than the base is widened to it before the product. Without that, torch keeps a float16 `p`
times a float32 `c` in float16: the sum is rounded to 11 bits at every step, and a real ∂L/∂θ, about 1e-6,
vanishes on its way back. That is faster and another answer; `widened=False` shows how fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

__all__ = ["naive_compose", "naive_gradient"]


def naive_compose(
    theta0: Mapping[str, Tensor],
    vectors: Sequence[Mapping[str, Tensor]],
    lam: Tensor,
    *,
    widened: bool = True,
) -> dict[str, Tensor]:
    """θ(λ) for λ (T M), differentiable in λ. `vectors` are T mappings from block name to τ."""

    def wide(tau: Tensor, base: Tensor) -> Tensor:
        return tau.to(base.dtype) if widened else tau

    deltas = [
        sum([wide(tau[name], base) * lam[t, m] for t, tau in enumerate(vectors)])
        for m, (name, base) in enumerate(theta0.items())
    ]
    return {name: base + delta for (name, base), delta in zip(theta0.items(), deltas, strict=True)}


def naive_gradient(theta: Mapping[str, Tensor], grads: Mapping[str, Tensor], lam: Tensor) -> Tensor:
    """∂L/∂λ from ∂L/∂θ, by autograd through the sum."""
    names = list(theta)
    (grad,) = torch.autograd.grad([theta[n] for n in names], lam, grad_outputs=[grads[n] for n in names])
    return grad
