"""An image tower at θ(λ), shared by all views and micro-batches of a step. Knows nothing of losses.

    encoder = ComposedEncoder(model.visual, composer)
    composition = encoder.at(lam)                            # reads the bank once
    for images, labels in micro_batches:
        loss(composition.logits(images, head, logit_scale=100.0), labels).backward()
    grad = composition.gradient()                            # reads the bank once: ∂L/∂λ

The base model is shared by all users and never written: the encoder works in a twin that shares its tensors
but has modules of its own, so runs in other threads are not disturbed. BatchNorm statistics stay the base's.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from atlas_engine.compose.compose import BlockBuffers, Composer
from atlas_engine.errors import BankError, ConfigError
from atlas_engine.runtime import frozen_copy

__all__ = ["ComposedEncoder", "Composition", "cosine_logits", "materialise"]


class ComposedEncoder:
    """An image tower whose weights are θ(λ). For one user at a time; θ is kept from step to step."""

    def __init__(self, visual: nn.Module, composer: Composer, *, autocast: torch.dtype | None = None) -> None:
        self.composer = composer
        self._autocast = autocast
        self._tower = frozen_copy(visual)
        self._slots = _slots(self._tower, composer.blocks.names)
        self._leaves: list[dict[str, nn.Parameter]] = []  # one tower's worth per run
        self._theta: BlockBuffers | None = None
        self._grads: BlockBuffers | None = None
        self._placed = -1
        self._turn = 0

    def at(self, lam: Tensor) -> Composition:
        """The tower at θ(λ), for free coefficients of the composer's shape or R of them, (R …).

        It uses the memory of the one before, which is thereby void.
        """
        runs = _runs(lam, self.composer)
        if runs != len(self._leaves):
            self._make_room(runs)
        self._turn += 1
        self._clear_gradients()
        self._write(lam if runs > 1 else lam.reshape(self.composer.shape))
        return Composition(self, turn=self._turn, batched=lam.dim() > len(self.composer.shape))

    def features(self, images: Tensor, *, run: int = 0) -> Tensor:
        """(B 3 H W) -> (B D), not normalised, at the latest composition."""
        with torch.autocast(images.device.type, dtype=self._autocast, enabled=self._autocast is not None):
            return self._forward(images, run).float()

    def gradient(self) -> Tensor:
        """∂L/∂λ of all that went backward since the latest composition, with a leading R where R > 1."""
        if self._grads is not None:
            return self.composer.gradient(self._grads)
        grads = {}
        for name, leaf in self._leaves[0].items():  # a block that no image has passed through has none
            grads[name] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        return self.composer.gradient(grads)

    def _make_room(self, runs: int) -> None:
        """Leaf parameters that are views into one arena: composing writes them all, none is placed anew."""
        self._leaves, self._grads, self._placed = [], None, -1
        self._theta = theta = self.composer.buffers(runs if runs > 1 else None)
        if runs == 1:
            self._leaves = [{name: nn.Parameter(view) for name, view in theta.items()}]
            return
        self._grads = self.composer.buffers(runs)
        self._leaves = [
            {name: nn.Parameter(view[run]) for name, view in theta.items()} for run in range(runs)
        ]

    def _clear_gradients(self) -> None:
        """One run takes autograd's gradients as they come; several add into one arena, for one product."""
        if self._grads is not None:
            self._grads.flat.zero_()
        for run, leaves in enumerate(self._leaves):
            for name, leaf in leaves.items():
                leaf.grad = None if self._grads is None else self._grads[name][run]

    def _write(self, lam: Tensor) -> None:
        self.composer.compose(lam, into=self._theta)

    def _forward(self, images: Tensor, run: int) -> Tensor:
        if self._placed != run:
            _place(self._slots, self._leaves[run])
            self._placed = run
        features: Tensor = self._tower(images)
        return features


class Composition:
    """The tower at one λ, until the encoder composes the next."""

    def __init__(self, encoder: ComposedEncoder, *, turn: int, batched: bool) -> None:
        self._encoder, self._turn, self._batched = encoder, turn, batched

    def features(self, images: Tensor, *, run: int = 0) -> Tensor:
        """(B 3 H W) -> (B D) of length 1."""
        return normalize(self._current().features(images, run=run), dim=-1)

    def logits(self, images: Tensor, head: Tensor, *, logit_scale: float, run: int = 0) -> Tensor:
        """(B 3 H W) -> (B C), for a head (C D) of rows of length 1."""
        return cosine_logits(self.features(images, run=run), head, logit_scale=logit_scale)

    def gradient(self) -> Tensor:
        """∂(sum of all that went backward) / ∂λ, of the shape of the λ given."""
        grad = self._current().gradient()
        shape = self._encoder.composer.shape
        return grad.reshape(-1, *shape) if self._batched else grad.reshape(shape)

    def _current(self) -> ComposedEncoder:
        if self._turn != self._encoder._turn:
            raise ConfigError(
                "this composition is out of date: its encoder has composed another. Use the latest."
            )
        return self._encoder


def cosine_logits(features: Tensor, head: Tensor, *, logit_scale: float) -> Tensor:
    """logit_scale · ⟨feature, class⟩, in float32. Features (B D) and head (C D) have rows of length 1."""
    return logit_scale * features.float() @ head.float().T  # (B D) @ (D C) -> (B C)


def materialise(visual: nn.Module, theta: Mapping[str, Tensor]) -> nn.Module:
    """An ordinary module with the weights ``theta``, frozen and in eval mode. It costs what ``visual`` costs.

    ``theta`` becomes the module's own; what it does not name is copied, so the base is out of reach.
    """
    tower = frozen_copy(visual, share=False, leave_out=theta)
    leaves = {name: nn.Parameter(weights.detach(), requires_grad=False) for name, weights in theta.items()}
    _place(_slots(tower, theta), leaves)
    return tower


Slots = dict[str, list[tuple[nn.Module, str]]]
"""Where each parameter lives: (module, attribute), more than one where it is tied."""


def _slots(tower: nn.Module, names: Mapping[str, Tensor] | tuple[str, ...]) -> Slots:
    every: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in tower.modules():
        for attribute, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            every.setdefault(id(parameter), []).append((module, attribute))
    known = dict(tower.named_parameters())
    strange = [name for name in names if name not in known]
    if strange:
        raise BankError(
            f"the image tower has no parameter '{strange[0]}' ({len(strange)} names are strange to it). "
            "Use the bank that was made for this model."
        )
    return {name: every[id(known[name])] for name in names}


def _place(slots: Slots, leaves: Mapping[str, nn.Parameter]) -> None:
    for name, leaf in leaves.items():
        for module, attribute in slots[name]:
            setattr(module, attribute, leaf)


def _runs(lam: Tensor, composer: Composer) -> int:
    lead, shape = tuple(lam.shape[: lam.dim() - len(composer.shape)]), composer.shape
    if tuple(lam.shape) != (*lead, *shape) or len(lead) > 1 or 0 in lead:
        raise ConfigError(
            f"coefficients of shape {tuple(lam.shape)} do not fit {shape}. Pass {shape}, or (R, …)."
        )
    return lead[0] if lead else 1
