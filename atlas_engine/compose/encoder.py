"""An image tower at θ(λ), shared by all views and micro-batches of a step.

    encoder = ComposedEncoder(model.visual, composer)
    composition = encoder.at(lam)                            # reads the bank once
    for images, labels in micro_batches:
        loss(composition.logits(images, head, logit_scale=100.0), labels).backward()
    grad = composition.gradient()                            # reads the bank once: ∂L/∂λ

The base model is shared by all users and never written: the encoder works in a copy that shares its tensors
but has modules of its own, so it does not disturb runs in other threads. BatchNorm statistics stay the
base's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from atlas_engine.compose.compose import BlockBuffers, Composer
from atlas_engine.compose.gradient_scale import GradientScale
from atlas_engine.errors import BankError, ConfigError
from atlas_engine.runtime import autocast, frozen_copy

__all__ = ["ComposedEncoder", "Composition", "cosine_logits", "materialise"]


class ComposedEncoder:
    """An image tower whose weights are θ(λ). For one user at a time; θ is kept from step to step."""

    def __init__(self, visual: nn.Module, composer: Composer, *, autocast: torch.dtype | None = None) -> None:
        self.composer = composer
        self._autocast = autocast
        self._tower = frozen_copy(visual)
        self._slots = _find_slots(self._tower, composer.blocks.names)
        self._leaves: list[dict[str, nn.Parameter]] = []  # θ of each run, by block name
        self._theta: BlockBuffers | None = None
        self._grads: BlockBuffers | None = None
        self._scales: dict[int, GradientScale] = {}  # of the runs whose images went through the tower
        self._run_in_tower = -1
        self._version = 0  # counts compositions

    def at(self, lam: Float[Tensor, "*shape"]) -> Composition:
        """The tower at θ(λ), for free coefficients of the composer's shape or R of them, (R …).

        It takes over the memory of the composition before, which can no longer be used.
        """
        runs = _count_runs(lam, self.composer)
        if runs != len(self._leaves):
            self._allocate(runs)
        self._version += 1
        self._clear_gradients()
        self._compose(lam if runs > 1 else lam.reshape(self.composer.shape))
        return Composition(self, version=self._version, batched=lam.dim() > len(self.composer.shape))

    def features(self, images: Float[Tensor, "B ..."], *, run: int = 0) -> Float[Tensor, "B D"]:
        """Features of images (B 3 H W), not normalised, at the latest composition."""
        with autocast(images.device, self._autocast):
            features = self._forward(images, run).float()
        return self._scales.setdefault(run, GradientScale()).enter(features, precision=self._autocast)

    def gradient(self) -> Float[Tensor, "*shape"]:
        """∂L/∂λ of all backward passes since the latest composition, with a leading R where R > 1."""
        if self._grads is not None:
            grad = self.composer.gradient(self._grads)
            for run, scale in self._scales.items():
                grad[run] = scale.leave(grad[run])
            return grad
        grads = {}
        for name, leaf in self._leaves[0].items():  # a block that no image has passed through has no gradient
            grads[name] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        grad = self.composer.gradient(grads)
        return self._scales[0].leave(grad) if 0 in self._scales else grad

    def _allocate(self, runs: int) -> None:
        """Make the leaf parameters as views into one buffer: composing writes into all of them."""
        self._leaves, self._grads, self._run_in_tower = [], None, -1
        self._theta = theta = self.composer.buffers(runs if runs > 1 else None)
        if runs == 1:
            self._leaves = [{name: nn.Parameter(view) for name, view in theta.items()}]
            return
        self._grads = self.composer.buffers(runs)
        self._leaves = [
            {name: nn.Parameter(view[run]) for name, view in theta.items()} for run in range(runs)
        ]

    def _clear_gradients(self) -> None:
        """One run takes autograd's gradients as they come; several add into one buffer, for one product."""
        self._scales = {}
        if self._grads is not None:
            self._grads.flat.zero_()
        for run, leaves in enumerate(self._leaves):
            for name, leaf in leaves.items():
                leaf.grad = None if self._grads is None else self._grads[name][run]

    def _compose(self, lam: Float[Tensor, "*shape"]) -> None:
        self.composer.compose(lam, into=self._theta)

    def _forward(self, images: Float[Tensor, "B ..."], run: int) -> Float[Tensor, "B D"]:
        if self._run_in_tower != run:
            _fill_slots(self._slots, self._leaves[run])
            self._run_in_tower = run
        features: Tensor = self._tower(images)
        return features


class Composition:
    """The tower at one λ, until the encoder composes the next."""

    def __init__(self, encoder: ComposedEncoder, *, version: int, batched: bool) -> None:
        self._encoder, self._version, self._batched = encoder, version, batched

    def features(self, images: Float[Tensor, "B ..."], *, run: int = 0) -> Float[Tensor, "B D"]:
        """Features of images (B 3 H W), normalised."""
        return normalize(self._current_encoder().features(images, run=run), dim=-1)

    def logits(
        self,
        images: Float[Tensor, "B ..."],
        head: Float[Tensor, "C D"],
        *,
        logit_scale: float,
        run: int = 0,
    ) -> Float[Tensor, "B C"]:
        """Logits of images (B 3 H W), for a head with rows of length 1."""
        return cosine_logits(self.features(images, run=run), head, logit_scale=logit_scale)

    def gradient(self) -> Float[Tensor, "*shape"]:
        """∂L/∂λ of all backward passes through this composition, of the shape of the λ given."""
        grad = self._current_encoder().gradient()
        shape = self._encoder.composer.shape
        return grad.reshape(-1, *shape) if self._batched else grad.reshape(shape)

    def _current_encoder(self) -> ComposedEncoder:
        if self._version != self._encoder._version:
            raise ConfigError(
                "this composition is out of date: its encoder has composed another. Use the latest."
            )
        return self._encoder


def cosine_logits(
    features: Float[Tensor, "*B D"], head: Float[Tensor, "C D"], *, logit_scale: float
) -> Float[Tensor, "*B C"]:
    """logit_scale · ⟨feature, class⟩, in float32. Features and head have rows of length 1."""
    return logit_scale * features.float() @ head.float().T  # (B D) @ (D C) -> (B C)


def materialise(visual: nn.Module, theta: Mapping[str, Tensor]) -> nn.Module:
    """An ordinary module with the weights `theta`, frozen and in eval mode, as fast as `visual`.

    It holds the tensors of `theta` themselves and copies of all others: nothing is shared with the base.
    """
    tower = frozen_copy(visual, share=False, leave_out=theta)
    leaves = {name: nn.Parameter(weights.detach(), requires_grad=False) for name, weights in theta.items()}
    _fill_slots(_find_slots(tower, theta), leaves)
    return tower


Slots = dict[str, list[tuple[nn.Module, str]]]
"""The places of each parameter, (module, attribute); more than one where it is tied."""


def _find_slots(tower: nn.Module, names: Iterable[str]) -> Slots:
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in tower.modules():
        for attribute, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            places.setdefault(id(parameter), []).append((module, attribute))
    known = dict(tower.named_parameters())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise BankError(
            f"the image tower has no parameter '{unknown[0]}' ({len(unknown)} names are strange to it). "
            "Use the bank that was made for this model."
        )
    return {name: places[id(known[name])] for name in names}


def _fill_slots(slots: Slots, leaves: Mapping[str, nn.Parameter]) -> None:
    for name, leaf in leaves.items():
        for module, attribute in slots[name]:
            setattr(module, attribute, leaf)


def _count_runs(lam: Tensor, composer: Composer) -> int:
    """R of coefficients (R, *shape), 1 of coefficients (*shape)."""
    lead, shape = tuple(lam.shape[: lam.dim() - len(composer.shape)]), composer.shape
    if tuple(lam.shape) != (*lead, *shape) or len(lead) > 1 or 0 in lead:
        raise ConfigError(
            f"coefficients of shape {tuple(lam.shape)} do not fit {shape}. Pass {shape}, or (R, …)."
        )
    return lead[0] if lead else 1
