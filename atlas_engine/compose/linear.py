"""The tower's tangent at θ0: f(x; θ0) + J·Δ(λ) in place of f(x; θ0 + Δ). Knows nothing of losses.

The paper's linearised variant. Features are then exactly linear in the coefficients, and J never changes:
forward is one Jacobian–vector product, and backward, Jᵀ·v, is an ordinary backward pass at θ0. No second
derivative is ever taken. No ordinary module gives the same answer, so nothing here can be materialised.
"""

from __future__ import annotations

import functools
import warnings

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, jvp

from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.compose.kernel import Composer

__all__ = ["LinearEncoder"]


class LinearEncoder(ComposedEncoder):
    """A `ComposedEncoder` whose features are those of the tower's tangent at θ0."""

    def __init__(self, visual: nn.Module, composer: Composer, *, autocast: torch.dtype | None = None) -> None:
        super().__init__(visual, composer, autocast=autocast)
        # Δ on a base of nothing, not θ(λ) − θ0: the difference of two near numbers would lose digits.
        nothing = {name: base.new_zeros(()).expand(base.shape) for name, base in composer.theta0.items()}
        self._delta = Composer(nothing, composer.bank, composer.layout)
        _load_jvp_rules()
        for module in self._tower.modules():
            if isinstance(module, nn.MultiheadAttention):  # its path for inference has no jvp either
                module.training, module.dropout = True, 0.0

    def _make_room(self, runs: int) -> None:
        super()._make_room(runs)
        base = self.composer.theta0
        self._leaves = [
            {name: nn.Parameter(base[name].detach()) for name in leaves} for leaves in self._leaves
        ]

    def _write(self, lam: Tensor) -> None:
        self._delta.compose(lam, into=self._theta)

    def _forward(self, images: Tensor, run: int) -> Tensor:
        assert self._theta is not None
        delta = {name: view if self._grads is None else view[run] for name, view in self._theta.items()}

        def features(weights: dict[str, Tensor]) -> Tensor:
            return functional_call(self._tower, weights, (images,))  # type: ignore[no-any-return]

        # The value at θ0 keeps its graph: its backward is the tangent's too. The tangent needs none.
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # fused kernels have no jvp
            pair: tuple[Tensor, Tensor] = jvp(features, (self._leaves[run],), (delta,))  # type: ignore[assignment]
        value, tangent = pair
        return value + tangent.detach()


@functools.cache
def _load_jvp_rules() -> None:
    """Have torch compile its rules, once: on first use it does so by a call that it has itself deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with forward_ad.dual_level():
            forward_ad.make_dual(torch.zeros(()), torch.zeros(()))  # type: ignore[no-untyped-call]
