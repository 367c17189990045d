"""A tower and its tangent: f(x; θ) and J·Δ in one forward pass.

The paper's linearised variant needs it, f(x; θ0) + J·Δ in place of f(x; θ0 + Δ), both to train a vector
(`tunable`) and to compose one (`compose.linearised`). J never changes, so the gradient in Δ is an ordinary
backward pass at θ0; no second derivative is ever taken.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["prepare_for_jvp", "value_and_tangent"]


def prepare_for_jvp(tower: nn.Module) -> None:
    """Switch off what has no jvp, attention's fast path for inference, in a tower that nobody else uses."""
    _load_jvp_rules()
    for module in tower.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.training, module.dropout = True, 0.0


def value_and_tangent(
    tower: nn.Module, theta: Mapping[str, Tensor], delta: Mapping[str, Tensor], images: Tensor
) -> tuple[Tensor, Tensor]:
    """f(x; θ), with its graph to θ, and J·Δ at θ, without one. Both (B D)."""

    def features(weights: dict[str, Tensor]) -> Tensor:
        return functional_call(tower, weights, (images,))  # type: ignore[no-any-return]

    tangents = {name: tensor.detach() for name, tensor in delta.items()}
    with sdpa_kernel(SDPBackend.MATH):  # fused kernels have no jvp
        pair: tuple[Tensor, Tensor] = jvp(features, (dict(theta),), (tangents,))  # type: ignore[assignment]
    value, tangent = pair
    return value, tangent.detach()


@functools.cache
def _load_jvp_rules() -> None:
    """Load torch's jvp rules once, without the warning: torch loads them by a call that it has deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with forward_ad.dual_level():
            forward_ad.make_dual(torch.zeros(()), torch.zeros(()))  # type: ignore[no-untyped-call]
