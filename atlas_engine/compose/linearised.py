"""The tower's tangent at θ0: f(x; θ0) + J·Δ(λ) in place of f(x; θ0 + Δ).

The paper's linearised variant. Features are then exactly linear in the coefficients, and J never changes:
forward is one Jacobian–vector product, and backward, Jᵀ·v, is an ordinary backward pass at θ0. No second
derivative is ever taken. No weights give the same answer, so what is built for inference is a `TangentTower`.

    encoder = make_encoder(visual, composer)                 # as the kind of the composer's bank wants it
    tower = tower_at(visual, composer, lam)                  # for inference: weights at θ(λ), or the tangent
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from atlas_engine.bank.tangent import prepare_for_jvp, value_and_tangent
from atlas_engine.bank.vector import LINEAR
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import ComposedEncoder, materialise
from atlas_engine.runtime import frozen_copy

__all__ = ["LinearisedEncoder", "TangentTower", "make_encoder", "tower_at"]


def make_encoder(visual: nn.Module, composer: Composer) -> ComposedEncoder:
    """The encoder for the composer's bank: of weights θ(λ) or, for linear vectors, of the tower's tangent."""
    return (LinearisedEncoder if composer.bank.kind == LINEAR else ComposedEncoder)(visual, composer)


def tower_at(visual: nn.Module, composer: Composer, lam: Float[Tensor, "*shape"]) -> nn.Module:
    """The frozen tower at λ, for inference: an ordinary module or, for linear vectors, a `TangentTower`.

    At λ = 0 the tangent is the tower, so that is an ordinary module for linear vectors as well.
    """
    if composer.bank.kind != LINEAR or not bool(lam.any()):
        return materialise(visual, composer.compose(lam))
    return TangentTower(visual, _difference_composer(composer).compose(lam))


class TangentTower(nn.Module):
    """A frozen tower whose output is f(x; θ0) + J·Δ; about twice the cost of the tower.

    Its parameters are θ0: Δ is no part of them, and no weights would give the same answer.
    """

    def __init__(self, visual: nn.Module, delta: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.tower, self._delta = frozen_copy(visual), dict(delta)
        prepare_for_jvp(self.tower)

    def rebuild(self, change: Callable[[nn.Module], nn.Module]) -> TangentTower:
        """The tangent of `change(tower)`, a tower with the same parameters, at the same Δ."""
        return TangentTower(change(self.tower), self._delta)

    @override
    def forward(self, images: Float[Tensor, "B ..."]) -> Float[Tensor, "B D"]:
        theta0 = dict(self.tower.named_parameters())
        at = {name: theta0[name] for name in self._delta}
        # a jvp records nothing for a backward pass, but does not work on inference tensors
        with torch.inference_mode(False), torch.no_grad():
            own = images.clone() if images.is_inference() else images
            value, tangent = value_and_tangent(self.tower, at, self._delta, own)
        return value + tangent


def _difference_composer(composer: Composer) -> Composer:
    """A composer of Δ(λ): θ(λ) on a base of zeros, because θ(λ) − θ0 would lose digits."""
    zeros = {name: base.new_zeros(()).expand(base.shape) for name, base in composer.theta0.items()}
    return Composer(zeros, composer.bank, composer.layout)


class LinearisedEncoder(ComposedEncoder):
    """A `ComposedEncoder` whose features are those of the tower's tangent at θ0."""

    def __init__(self, visual: nn.Module, composer: Composer, *, autocast: torch.dtype | None = None) -> None:
        super().__init__(visual, composer, autocast=autocast)
        self._delta_composer = _difference_composer(composer)
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
