"""The image tower at coefficients: the whole of it to measure, its late part to learn.

    whole = Whole(scene)
    held.marks(whole.logits(table, held.squares))            # at any λ (T M)
    late = Late(scene, share=0.9, start=table)               # the early blocks stay at the start
    late.subject(), late.activations(images), late.table(lam)

Knows nothing of losses.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from atlas_engine.adapt.arithmetic.scene import ArithmeticContext
from atlas_engine.adapt.trainable import TrainableCoefficients
from atlas_engine.adapt.trainable_part import TrainablePart
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import ComposedEncoder, cosine_logits, materialise

__all__ = ["CHUNK", "LateTower", "WholeTower", "coefficients"]

CHUNK = 64


class WholeTower:
    """The whole tower at one λ after the other."""

    def __init__(self, scene: ArithmeticContext) -> None:
        self._scene = scene
        self._composer = Composer(dict(scene.backbone.visual.named_parameters()), scene.bank)
        self._encoder = ComposedEncoder(scene.backbone.visual, self._composer)

    @property
    def shape(self) -> tuple[int, ...]:
        """(T M)."""
        return self._composer.shape

    def zeros(self) -> Tensor:
        """The λ of zero-shot."""
        return self._composer.initial()

    def along(self, vectors: dict[str, float]) -> Tensor:
        """λ (T M) that is one number for all blocks of each vector named, and 0 for the others."""
        table = self.zeros()
        for name, value in vectors.items():
            table[self._scene.bank.tasks.index(name)] = value
        return table

    @torch.no_grad()
    def features(self, table: Tensor, squares: Tensor) -> Tensor:
        """(N D) of length 1, for uint8 squares (N 3 S S), at λ (T M)."""
        see, composition = self._scene.backbone.as_input, self._encoder.at(table)
        return torch.cat(
            [composition.features(see(some.float() / 255)) for some in torch.split(squares, CHUNK)]
        )

    def logits(self, table: Tensor, squares: Tensor) -> Tensor:
        """(N ΣC), under the head of all tasks."""
        scale = self._scene.backbone.logit_scale
        return cosine_logits(self.features(table, squares), self._scene.head, logit_scale=scale)


class LateTower:
    """The tower from a cut on, whose λ is learned, above an early part that stays at its start."""

    def __init__(self, scene: ArithmeticContext, *, share: float, start: Tensor) -> None:
        """`start` is λ (T M) over the whole tower."""
        self._scene, self._start = scene, start
        self._late = self._front = TrainablePart(scene.backbone, scene.bank, share=share)
        self._composer = self._late.composer()
        if len(self._composer.blocks) < len(scene.bank.blocks) and bool(start.any()):
            base = dict(scene.backbone.visual.named_parameters())
            moved = materialise(scene.backbone.visual, Composer(base, scene.bank).compose(start))
            self._front = TrainablePart(replace(scene.backbone, visual=moved), scene.bank, share=share)
        self._places = torch.tensor([scene.bank.blocks.index(block) for block in self._composer.blocks])

    def subject(self) -> TrainableCoefficients:
        """λ of the late blocks, to be learned from the start on, one run."""
        return TrainableCoefficients(
            ComposedEncoder(self._late.tower, self._composer),
            self._scene.head,
            logit_scale=self._scene.backbone.logit_scale,
            start=self._start[:, self._places].clone()[None],
        )

    def activations(self, images: Tensor) -> Tensor:
        """Images (N 3 S S) in 0 … 1 as far as the cut, or as the tower takes them where there is none."""
        return self._front.activations(images)

    def table(self, lam: Tensor) -> Tensor:
        """λ over the whole tower (T M), from what was learned of the late blocks."""
        return self._start.index_copy(1, self._places.to(lam.device), lam)


def coefficients(scene: ArithmeticContext, table: Tensor) -> Coefficients:
    """λ (T M) by name, to keep."""
    return Coefficients(table.detach().cpu(), Layout(), scene.bank.tasks, scene.bank.blocks)
