"""The trainable part of an image tower, on top of a frozen prefix whose activations are computed once.

    part = TrainablePart(backbone, bank, share=0.5)          # the last half of the weights
    kept = part.activations(images)                          # through the frozen prefix, once per view
    part.features(kept)                                      # zero-shot features (N D) of length 1
    encoder = make_encoder(part.tower, part.composer())      # the rest of the tower at θ(λ)
    part.coefficients(lam)                                   # λ over the whole tower, for a recipe

With `multi_level`, features also hold the penultimate layer and, after `fit_feature_stats`, the pooled
feature maps (`clip.feature_levels`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine.adapt.streamed_activations import Activations, StreamedActivations, split_activations
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import BLOCK_KINDS
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.feature_levels import (
    FeatureStats,
    first_pooled_map,
    fit_feature_stats,
    matching_logit_scale,
    pad_text_embeddings,
    pooled_maps_tower,
    with_feature_levels,
)
from atlas_engine.clip.tower_split import split_tower
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.errors import ModelError
from atlas_engine.heads.base import LabelledFeatures
from atlas_engine.runtime import autocast

__all__ = ["IMAGES_AT_ONCE", "FrozenSplit", "Restorable", "TrainablePart", "multi_level_features"]

IMAGES_AT_ONCE = 64  # through the tower
HALF = 0.5  # of the weights: activations in the middle of a tower are smaller than its input


class FrozenSplit:
    """A tower split into a frozen prefix and the rest. A tower that cannot be split has no prefix."""

    def __init__(self, backbone: Backbone, *, share: float, multi_level: bool = False) -> None:
        """The rest holds at least a `share` of the weights, from the tower's end; all of them at 1."""
        self.backbone = backbone
        first_map = first_pooled_map(backbone.visual) if multi_level else None
        split = split_tower(backbone.visual, share=share, include=first_map) if share < 1 else None
        self.plain_tower = backbone.visual if split is None else split.suffix
        self._prefix: Callable[[Tensor], Tensor] | None = None if split is None else split.run_prefix
        self.tower: nn.Module = with_feature_levels(self.plain_tower) if multi_level else self.plain_tower
        self.feature_stats: FeatureStats | None = None

    def clean_activations(
        self,
        pixels: UInt8[Tensor, "N 3 S S"],
        *,
        stream: bool,
        before_each: Callable[[], None] = lambda: None,
    ) -> Activations:
        """Activations (N …) of the images as they are, a part at a time.

        With `stream` they are computed again whenever they are asked for, unless there is a frozen prefix:
        its activations are computed once and kept. `before_each` is called before each part.
        """
        streamed = StreamedActivations(
            pixels, self.activations, device=self.backbone.device, before_each=before_each
        )
        if stream and self._prefix is None:
            return streamed
        return torch.cat(list(streamed.split(IMAGES_AT_ONCE)))

    @torch.no_grad()
    def activations(self, images: Float[Tensor, "N 3 S S"]) -> Tensor:
        """Activations (N …) of images in 0 … 1 behind the frozen prefix, or the tower's input without one."""
        inputs = [self.backbone.as_input(part) for part in torch.split(images, IMAGES_AT_ONCE)]
        prefix = self._prefix
        return torch.cat(inputs if prefix is None else [self.run_tower(prefix, part) for part in inputs])

    @torch.no_grad()
    def fit_feature_stats(self, activations: Activations) -> None:
        """Add the tower's pooled feature maps, if any, to the features, standardised on these images."""
        pooled_maps = pooled_maps_tower(self.plain_tower)
        if pooled_maps is not None:
            parts = split_activations(activations, IMAGES_AT_ONCE)
            pooled = [self.run_tower(pooled_maps, part) for part in parts]
            self.use_feature_stats(fit_feature_stats(torch.cat(pooled)))

    def use_feature_stats(self, feature_stats: FeatureStats) -> None:
        """Add the pooled feature maps to the features, standardised as a recipe has it."""
        self.feature_stats = feature_stats
        self.tower = with_feature_levels(self.plain_tower, feature_stats=feature_stats)

    @torch.no_grad()
    def features(
        self, activations: Activations, *, tower: Callable[[Tensor], Tensor] | None = None
    ) -> Float[Tensor, "N D"]:
        """Features of length 1 from the base weights, or from another `tower` on the same activations."""
        run = self.tower if tower is None else tower
        parts = [self.run_tower(run, part) for part in split_activations(activations, IMAGES_AT_ONCE)]
        return F.normalize(torch.cat(parts), dim=-1)

    def run_tower(self, tower: Callable[[Tensor], Tensor], inputs: Float[Tensor, "B ..."]) -> Tensor:
        """Outputs (B …) of a part of the tower in float32, computed in the precision of their device."""
        with autocast(inputs.device):
            return tower(inputs).float()

    def zero_shot_head(self, text: Float[Tensor, "C D"], width: int) -> tuple[Float[Tensor, "C W"], float]:
        """Class embeddings and a logit scale that give zero-shot's logits on features of that width."""
        scale = matching_logit_scale(self.backbone.logit_scale, text, width, feature_stats=self.feature_stats)
        return pad_text_embeddings(text, width), scale


def multi_level_features(
    backbone: Backbone,
    pixels: UInt8[Tensor, "N 3 S S"],
    labels: Int[Tensor, " N"],
    text: Float[Tensor, "C D"],
) -> LabelledFeatures:
    """Features of all levels of the base model, standardised on these images, and class embeddings to match.

    Their logits are those of zero-shot.
    """
    split = FrozenSplit(backbone, share=HALF, multi_level=True)
    activations = split.activations(pixels.float() / 255)
    split.fit_feature_stats(activations)
    features = split.features(activations)
    padded, scale = split.zero_shot_head(text, features.shape[1])
    return LabelledFeatures(features, labels, padded, logit_scale=scale)


class Restorable(Protocol):
    """Some of a bank's vectors over the trainable blocks (`adapt.selection`)."""

    @property
    def bank(self) -> TaskVectorBank:
        """The vectors."""

    def restore(self, learned: Coefficients) -> Coefficients:
        """Their λ as λ of all vectors of the bank that they were chosen from."""


class TrainablePart(FrozenSplit):
    """A split tower with the task vectors of its trainable blocks: all of the rest, or some kinds of it."""

    def __init__(
        self,
        backbone: Backbone,
        bank: TaskVectorBank,
        *,
        share: float,
        layout: Layout | None = None,
        multi_level: bool = False,
        block_kinds: Sequence[str] = BLOCK_KINDS,
    ) -> None:
        super().__init__(backbone, share=share, multi_level=multi_level)
        self.bank, self.layout, self._block_kinds = bank, layout or Layout(), block_kinds
        self._selected: Restorable | None = None

    def use(self, selected: Restorable) -> None:
        """Compose with these vectors from here on, in place of all of the bank's."""
        self._selected = selected

    def composer(self) -> Composer:
        """A composer for θ(λ) of the trainable blocks."""
        base = dict(self.backbone.visual.named_parameters())
        bank = self.trainable_bank() if self._selected is None else self._selected.bank
        return Composer({name: base[name] for name in bank.blocks.names}, bank, self.layout)

    def trainable_bank(self) -> TaskVectorBank:
        """All vectors of the bank over the trainable blocks; shares its memory."""
        blocks = self.bank.blocks
        present = [name for name, _ in self.tower.named_parameters()]
        names = [name for name in present if blocks[blocks.index(name)].kind in self._block_kinds]
        if not names:
            raise ModelError(
                f"no block of this part of the tower is a {' or '.join(self._block_kinds)}. Let more of it "
                "move (share=1), or choose a method that moves others."
            )
        return self.bank.select_blocks(names)

    def coefficients(self, lam: Tensor | None = None) -> Coefficients:
        """λ over all blocks of the tower, 0 for those that are not trainable; all 0 without `lam`."""
        bank = self.bank
        if lam is None:
            return Coefficients.zeros(bank.tasks, bank.blocks)
        used = self.trainable_bank() if self._selected is None else self._selected.bank
        trainable = used.blocks
        learned = Coefficients(lam.cpu(), self.layout, used.tasks, trainable)
        if self._selected is not None:
            learned = self._selected.restore(learned)
        return learned.widened(bank.blocks) if len(trainable) < len(bank.blocks) else learned
