"""An image tower whose weights can be fine-tuned, in three kinds; what is learned is a difference Δ.

    standard   f(x; θ0 + Δ)            Δ of every block is learned
    lora       f(x; θ0 + U V)          low-rank factors of every weight matrix and convolution; the rest stays
    linear     f(x; θ0) + J·Δ          the tower's tangent at θ0; Δ of every block is learned

Δ is learned, never θ: it starts at zero, weight decay pulls it back there, and no digits of it are lost in
the sum. The tower is a copy in evaluation mode, so BatchNorm statistics stay the base's.

    tunable = make_tunable(visual, "lora", rank=16, seed=0)
    loss(tunable.features(images)).backward()          # gradients arrive in tunable.leaves
    tunable.difference()                               # Δ by block name
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from typing_extensions import override

from atlas_engine.bank.blocks import Block, block_table
from atlas_engine.bank.tangent import prepare_for_jvp, value_and_tangent
from atlas_engine.bank.vector import LINEAR, LORA
from atlas_engine.runtime import generator

__all__ = ["TunableTower", "apply_difference", "make_tunable"]


def make_tunable(visual: nn.Module, kind: str, *, rank: int, seed: int) -> TunableTower:
    """The tower at Δ = 0, ready to be fine-tuned; `rank` and `seed` are those of LoRA's factors."""
    return _Lora(visual, rank=rank, seed=seed) if kind == LORA else apply_difference(visual, kind, {})


def apply_difference(visual: nn.Module, kind: str, difference: Mapping[str, Tensor]) -> TunableTower:
    """The tower with a difference learned as this kind; blocks that it does not name stay the base's."""
    return (_Linearised if kind == LINEAR else _Standard)(visual, difference)


class TunableTower(ABC):
    """An image tower and the leaf parameters that its difference is made of."""

    leaves: dict[str, nn.Parameter]

    def __init__(self, visual: nn.Module) -> None:
        self.tower = copy.deepcopy(visual).eval().requires_grad_(False)
        self.theta0 = {name: weights.detach() for name, weights in self.tower.named_parameters()}

    @abstractmethod
    def difference(self) -> dict[str, Tensor]:
        """Δ of the blocks that are learned, with its graph to the leaves."""

    def features(self, images: Tensor) -> Tensor:
        """(B 3 H W) -> (B D), not normalised."""
        theta = {name: self.theta0[name] + delta for name, delta in self.difference().items()}
        features: Tensor = functional_call(self.tower, theta, (images,))
        return features

    @torch.no_grad()
    def state(self) -> dict[str, Tensor]:
        """A copy of every leaf."""
        return {name: leaf.detach().clone() for name, leaf in self.leaves.items()}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Copy what `state` gave back into the leaves."""
        for name, leaf in self.leaves.items():
            leaf.copy_(state[name])


class _Standard(TunableTower):
    """A leaf Δ for every block."""

    def __init__(self, visual: nn.Module, start: Mapping[str, Tensor]) -> None:
        super().__init__(visual)
        self.leaves = {
            name: nn.Parameter(start[name].to(base, copy=True) if name in start else torch.zeros_like(base))
            for name, base in self.theta0.items()
        }

    @override
    def difference(self) -> dict[str, Tensor]:
        return dict(self.leaves)


class _Linearised(_Standard):
    """The same leaves, but features are those of the tower's tangent at θ0."""

    def __init__(self, visual: nn.Module, start: Mapping[str, Tensor]) -> None:
        super().__init__(visual, start)
        prepare_for_jvp(self.tower)

    @override
    def features(self, images: Tensor) -> Tensor:
        # exactly θ0, but with a gradient to Δ: Jᵀ·v is the backward pass of the tangent too
        theta = {name: self.theta0[name] + (delta - delta.detach()) for name, delta in self.leaves.items()}
        value, tangent = value_and_tangent(self.tower, theta, self.leaves, images)
        return value + tangent


class _Lora(TunableTower):
    """Δ = U V: U (rows r) starts at zero, V (r cols) at random. A block of rank up to r is learned whole."""

    def __init__(self, visual: nn.Module, *, rank: int, seed: int) -> None:
        super().__init__(visual)
        self.leaves = {}
        self._blocks = [block for block in block_table(self.theta0.items()) if block.is_matrix]
        draw = generator(seed)
        for block in self._blocks:
            self._add_leaves(block, rank, draw)

    def _add_leaves(self, block: Block, rank: int, draw: torch.Generator) -> None:
        base = self.theta0[block.name]
        rows, cols = block.shape[0], block.numel // block.shape[0]
        if min(rows, cols) <= rank:
            self.leaves[block.name] = nn.Parameter(torch.zeros_like(base))
            return
        v = torch.randn(rank, cols, generator=draw) / cols**0.5
        self.leaves[f"{block.name}#u"] = nn.Parameter(base.new_zeros(rows, rank))
        self.leaves[f"{block.name}#v"] = nn.Parameter(v.to(base))

    @override
    def difference(self) -> dict[str, Tensor]:
        return {block.name: self._delta(block) for block in self._blocks}

    def _delta(self, block: Block) -> Tensor:
        if block.name in self.leaves:
            return self.leaves[block.name]
        return (self.leaves[f"{block.name}#u"] @ self.leaves[f"{block.name}#v"]).view(block.shape)
