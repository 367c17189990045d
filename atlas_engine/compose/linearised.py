"""The tower's tangent at θ0: f(x; θ0) + J·Δ(λ) in place of f(x; θ0 + Δ).

The paper's linearised variant. Features are then exactly linear in the coefficients, and J never changes:
forward is one Jacobian–vector product, and backward, Jᵀ·v, is an ordinary backward pass at θ0. No second
derivative is ever taken. No ordinary module gives the same answer, so this encoder cannot be materialised.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from atlas_engine.bank.tangent import prepare_for_jvp, value_and_tangent
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import ComposedEncoder

__all__ = ["LinearisedEncoder"]


class LinearisedEncoder(ComposedEncoder):
    """A `ComposedEncoder` whose features are those of the tower's tangent at θ0."""

    def __init__(self, visual: nn.Module, composer: Composer, *, autocast: torch.dtype | None = None) -> None:
        super().__init__(visual, composer, autocast=autocast)
        # Δ on a base of zeros, not θ(λ) − θ0: the difference of two near numbers would lose digits.
        zeros = {name: base.new_zeros(()).expand(base.shape) for name, base in composer.theta0.items()}
        self._delta_composer = Composer(zeros, composer.bank, composer.layout)
        prepare_for_jvp(self._tower)

    @override
    def _allocate(self, runs: int) -> None:
        super()._allocate(runs)
        base = self.composer.theta0
        self._leaves = [
            {name: nn.Parameter(base[name].detach()) for name in leaves} for leaves in self._leaves
        ]

    @override
    def _compose(self, lam: Float[Tensor, "*shape"]) -> None:
        self._delta_composer.compose(lam, into=self._theta)

    @override
    def _forward(self, images: Float[Tensor, "B ..."], run: int) -> Float[Tensor, "B D"]:
        assert self._theta is not None  # here it holds Δ
        delta = {name: view if self._grads is None else view[run] for name, view in self._theta.items()}
        # The value at θ0 keeps its graph: its backward is the tangent's too. The tangent needs none.
        value, tangent = value_and_tangent(self._tower, self._leaves[run], delta, images)
        return value + tangent
