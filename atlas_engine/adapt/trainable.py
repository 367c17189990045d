"""Trainables: the tensors that the loop trains, by name, and the model's logits at their values.

    TrainableCoefficients   λ of a composed tower under a frozen head
    TrainableWithHeads      λ and the tensors of an adapter head, learned together
    TrainableNorms          the scales and shifts of a tower's norm layers: the baseline

Every tensor has a leading R: several runs (folds, seeds) are trained side by side, and one read of the bank
serves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from atlas_engine.compose.encoder import ComposedEncoder, Composition
from atlas_engine.compose.gradient_scale import GradientScale
from atlas_engine.errors import ConfigError, ModelError
from atlas_engine.heads.base import Head
from atlas_engine.objectives.base import LogitsFn
from atlas_engine.runtime import autocast, frozen_copy

__all__ = [
    "HEAD",
    "LAM",
    "Forward",
    "Trainable",
    "TrainableCoefficients",
    "TrainableNorms",
    "TrainableTensor",
    "TrainableWithHeads",
    "norm_names",
]

LAM = "lam"
"""The name of the coefficients among the learned tensors."""


@dataclass(frozen=True, eq=False)
class TrainableTensor:
    """A tensor to learn: the values that each run starts from, and settings of its own."""

    start: Tensor  # (R ...)
    lr_scale: float = 1.0  # factor on the loop's learning rate
    weight_decay: float | None = None  # None: as the loop
    normalise: bool | None = None  # scale its gradient to length 1; None: as the loop


class Trainable(Protocol):
    """Tensors to learn, and a model that gives logits at their values."""

    @property
    def tensors_to_learn(self) -> Mapping[str, TrainableTensor]:
        """The tensors by name, all with the same R."""
        ...

    def at(self, values: Mapping[str, Tensor]) -> Forward:
        """The model at these values; made once per optimiser step."""
        ...


class Forward(Protocol):
    """A model at fixed values, shared by every view and micro-batch of one step."""

    def logits_fn(self, run: int) -> LogitsFn:
        """Images to logits, for one run. Gradients of its backward passes add up until ``gradients()``."""
        ...

    def gradients(self) -> Mapping[str, Tensor]:
        """The gradient of the sum of all losses that went backward, by name, each (R ...)."""
        ...


class TrainableCoefficients:
    """λ of a composed image tower, under a frozen head."""

    def __init__(
        self,
        encoder: ComposedEncoder,
        head: Float[Tensor, "C D"],
        *,
        logit_scale: float,
        start: Float[Tensor, "R ..."],
    ) -> None:
        """``head`` has rows of length 1; ``start`` is the free coefficients of R runs."""
        self._encoder, self._head, self._logit_scale = encoder, head, logit_scale
        self._start = start

    @property
    def tensors_to_learn(self) -> Mapping[str, TrainableTensor]:
        """λ alone."""
        return {LAM: TrainableTensor(self._start)}

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


HEAD = "head."
"""The prefix of a head's tensors among the learned tensors."""


class TrainableWithHeads:
    """λ of a composed image tower, and the tensors of an adapter head for each run, learned together.

    Each run has its own head. It starts as it is given: initialised or fitted on zero-shot features.
    """

    def __init__(
        self, encoder: ComposedEncoder, heads: Sequence[Head], *, start: Float[Tensor, "R ..."]
    ) -> None:
        """``start`` is the free coefficients of R runs; ``heads`` are R heads of one kind and size."""
        if len(heads) != len(start):
            raise ConfigError(f"{len(start)} runs start with {len(heads)} heads. Give each run its own.")
        shapes = [{name: head.tensors[name].shape for name in head.rates} for head in heads]
        if any(shape != shapes[0] for shape in shapes):
            raise ConfigError(
                "the heads of the runs are of several kinds or sizes. Make all of one kind, from the same "
                "support with other rows held out (`LabelledFeatures.without`)."
            )
        self.encoder, self._heads, self._start = encoder, tuple(heads), start

    def group(self, runs: range) -> TrainableWithHeads:
        """Some of the runs, over the same encoder."""
        if len(runs) == len(self._heads):
            return self
        own = slice(runs.start, runs.stop)
        return TrainableWithHeads(self.encoder, self._heads[own], start=self._start[own])

    @property
    def tensors_to_learn(self) -> Mapping[str, TrainableTensor]:
        """λ, and the tensors of the heads that may be learned."""
        tensors = {LAM: TrainableTensor(self._start)}
        for name, rate in self._heads[0].rates.items():
            tensors[HEAD + name] = TrainableTensor(
                torch.stack([head.tensors[name] for head in self._heads]),
                lr_scale=rate.lr_scale,
                weight_decay=rate.weight_decay,
                normalise=rate.normalise,
            )
        return tensors

    def at(self, values: Mapping[str, Tensor]) -> Forward:
        """The tower at θ(λ) and the heads at their tensors; the bank is read here, once."""
        return _HeadedForward(self.encoder.at(values[LAM]), self._heads, _head_values(values))

    def head(self, values: Mapping[str, Tensor], *, run: int = 0) -> Head:
        """One run's head at these values."""
        return self._heads[run].at({name: value[run] for name, value in _head_values(values).items()})


class _HeadedForward:
    def __init__(self, composition: Composition, heads: Sequence[Head], values: Mapping[str, Tensor]) -> None:
        self._composition, self._heads, self._values = composition, heads, values
        self._leaves = [  # one set per run, so that runs do not share gradients
            {name: value[run].detach().clone().requires_grad_() for name, value in values.items()}
            for run in range(len(heads))
        ]

    def logits_fn(self, run: int) -> LogitsFn:
        head, leaves = self._heads[run], self._leaves[run]
        return lambda images: head.logits(self._composition.features(images, run=run), leaves)

    def gradients(self) -> Mapping[str, Tensor]:
        grads = {LAM: self._composition.gradient()}
        for name in self._values:
            leaves = [own[name] for own in self._leaves]
            grads[HEAD + name] = torch.stack(
                [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
            )
        return grads


def _head_values(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(HEAD): value for name, value in values.items() if name.startswith(HEAD)}


def norm_names(tower: nn.Module) -> tuple[str, ...]:
    """Names of the parameters of all norm layers of the tower, in the tower's order."""
    norms = [name for name, module in tower.named_modules() if "Norm" in type(module).__name__]
    owned = (f"{name}.{leaf}" for name in norms for leaf in ("weight", "bias"))
    known = dict(tower.named_parameters())
    return tuple(name for name in owned if name in known)


class TrainableNorms:
    """Scales and shifts of an image tower's norm layers, under a frozen head (Tent, ICLR 2021). One run.

    The tower itself is not changed, and the running statistics of batch norms are not updated.
    """

    def __init__(self, tower: nn.Module, head: Float[Tensor, "C D"], *, logit_scale: float) -> None:
        """``head`` has rows of length 1."""
        self._tower, self._head, self._logit_scale = frozen_copy(tower), head, logit_scale
        known = dict(tower.named_parameters())
        self._start = {name: known[name].detach()[None] for name in norm_names(tower)}
        if not self._start:
            raise ModelError(
                "this part of the image tower has no norm layers to learn. Let more of it move (share=1), "
                "or choose a method that learns coefficients."
            )

    @property
    def tensors_to_learn(self) -> Mapping[str, TrainableTensor]:
        """Every scale and shift, without weight decay, which would pull the scales to zero."""
        return {name: TrainableTensor(value, weight_decay=0.0) for name, value in self._start.items()}

    def at(self, values: Mapping[str, Tensor]) -> Forward:
        """The tower with these norms."""
        return _NormForward(self, {name: v[0].detach().clone() for name, v in values.items()})

    def logits(self, values: Mapping[str, Tensor], images: Float[Tensor, "B ..."]) -> Float[Tensor, "B C"]:
        """Logits of images at these values."""
        return self._logits(values, images, GradientScale())

    def _logits(self, values: Mapping[str, Tensor], images: Tensor, scale: GradientScale) -> Tensor:
        """Logits, whose gradient enters the tower by `scale`."""
        with autocast(images.device):
            features = functional_call(self._tower, dict(values), (images,)).float()
        return self._logit_scale * F.normalize(scale.enter(features), dim=-1) @ self._head.T


class _NormForward:
    def __init__(self, trainable: TrainableNorms, values: Mapping[str, Tensor]) -> None:
        self._trainable = trainable
        self._leaves = {name: value.requires_grad_() for name, value in values.items()}
        self._scale = GradientScale()

    def logits_fn(self, run: int) -> LogitsFn:  # noqa: ARG002 - there is one run
        return lambda images: self._trainable._logits(self._leaves, images, self._scale)

    def gradients(self) -> Mapping[str, Tensor]:
        return {
            name: self._scale.leave(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)[None]
            for name, leaf in self._leaves.items()
        }
