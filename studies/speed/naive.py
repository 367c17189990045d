"""The naive formulation of composition: the baseline of the benchmark, and a second opinion for the tests.

A Python sum of `p * c` over vectors for every block, inside autograd, made anew at every forward: what one
writes first. It keeps a graph over the whole bank and reads it once per forward and once per backward.

All differences come first, then all weights, as in the paper's own code; block by block it would need less
memory and time. A step of several forwards (views, micro-batches) runs backward after each of them.

A bank narrower than the base is widened to it before the product. Without that, torch keeps a float16 `p`
times a float32 `c` in float16: the sum is rounded to 11 bits at every step, and a real ∂L/∂θ, about 1e-6,
vanishes on its way back. That is faster and another answer; `widened=False` shows how fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from studies.speed.composition import BLOCK, ComposeAnswer, CompositionCase, draw_tower
from studies.speed.separate import Calls

__all__ = ["NOT_WIDENED", "ONE_FORWARD", "WHOLE_STEP", "naive_calls", "naive_compose", "naive_gradient"]

ONE_FORWARD, WHOLE_STEP, NOT_WIDENED = "one forward", "whole step", "not widened"


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
    """∂L/∂λ (T M) from ∂L/∂θ, by autograd through the sum."""
    names = list(theta)
    (grad,) = torch.autograd.grad([theta[n] for n in names], lam, grad_outputs=[grads[n] for n in names])
    return grad


def naive_calls(layers: int, storage: str) -> Calls:
    """What the baseline's own process can be asked for; it draws the same case as everyone."""
    case = CompositionCase.draw(draw_tower(layers=layers), storage=storage)
    theta0, lam, grads = case.theta0, case.lam, case.grads
    vectors = _as_mappings(case.bank)
    del case  # of the bank only the mappings stay

    def one_forward(given: dict[str, Tensor], *, widened: bool = True) -> ComposeAnswer:
        leaf = lam.clone().requires_grad_()
        theta = naive_compose(theta0, vectors, leaf, widened=widened)
        return theta[BLOCK].detach(), naive_gradient(theta, given, leaf)

    def whole_step() -> ComposeAnswer:
        blocks, found = zip(*(one_forward(given) for given in grads), strict=True)
        return blocks[-1], torch.stack(found).sum(0)

    return {
        ONE_FORWARD: lambda: one_forward(grads[0]),
        WHOLE_STEP: whole_step,
        NOT_WIDENED: lambda: one_forward(grads[0], widened=False),
    }


def _as_mappings(bank: TaskVectorBank) -> list[dict[str, Tensor]]:
    """The bank as T plain mappings of tensors in the width it is stored in."""
    dtype = getattr(torch, bank.storage)
    blocks = [(block, bank.vectors_of(block).to(dtype)) for block in bank.blocks]
    return [{block.name: tau[t].view(block.shape) for block, tau in blocks} for t in range(len(bank.tasks))]
