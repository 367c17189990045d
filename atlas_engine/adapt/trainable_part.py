"""The part of an image tower that may move, over activations kept where it begins. Knows nothing of losses.

    part = Part(backbone, share=0.5)                         # the same without a bank
    moving = Moving(backbone, bank, share=0.5)               # the late half of the weights
    kept = moving.activations(images)                        # once a view
    features = moving.features(kept)                         # zero-shot, of length 1
    encoder = ComposedEncoder(moving.tower, moving.composer())
    moving.coefficients(lam)                                 # over the whole tower, for a recipe

Where it is `wide`, features also tell what was seen (`clip.wide`), and after `get_used_to(activations)` what
was seen on the way, beside what is usual among these pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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

__all__ = ["FrozenSplit", "TrainablePart"]

CHUNK = 64


class FrozenSplit:
    """A tower cut in two where it can be; else all of it moves, and its input is what is kept."""

    def __init__(self, backbone: Backbone, *, share: float, wide: bool = False) -> None:
        self.backbone = backbone
        until = first_pooled_map(backbone.visual) if wide else None
        late = split_tower(backbone.visual, share=share, until=until) if share < 1 else None
        self._narrow = backbone.visual if late is None else late.tower
        self.tower: nn.Module = with_feature_levels(self._narrow) if wide else self._narrow
        self.feature_stats: FeatureStats | None = None
        self._early: Callable[[Tensor], Tensor] | None = None if late is None else late.early

    @torch.no_grad()
    def activations(self, images: Tensor) -> Tensor:
        """Images (N 3 S S) in 0 … 1 as far as the cut, or as the tower takes them where there is none."""
        parts = [self.backbone.as_input(part) for part in torch.split(images, CHUNK)]
        return torch.cat(parts if self._early is None else [self._early(part) for part in parts])

    @torch.no_grad()
    def fit_feature_stats(self, activations: Tensor) -> None:
        """From here on features also tell how pictures differ from these, where the tower has maps."""
        glance = pooled_maps_tower(self._narrow)
        if glance is not None:
            pooled = [glance(some) for some in torch.split(activations, CHUNK)]
            self.feature_stats = fit_feature_stats(torch.cat(pooled))
            self.tower = with_feature_levels(self._narrow, feature_stats=self.feature_stats)

    def words(self, text: Tensor, width: int) -> tuple[Tensor, float]:
        """Class embeddings (C D) and the logit scale for features of that width."""
        scale = matching_logit_scale(self.backbone.logit_scale, text, width, feature_stats=self.feature_stats)
        return pad_text_embeddings(text, width), scale

    @torch.no_grad()
    def features(self, activations: Tensor, *, see: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """(N …) -> (N D) of length 1, by the base weights or by another way to see from the same cut."""
        run = self.tower if see is None else see
        return F.normalize(torch.cat([run(part).float() for part in torch.split(activations, CHUNK)]), dim=-1)


class TrainablePart(FrozenSplit):
    """A part of a tower, and the task vectors that move it: all its blocks, or those of some kinds."""

    def __init__(
        self,
        backbone: Backbone,
        bank: TaskVectorBank,
        *,
        share: float,
        layout: Layout | None = None,
        wide: bool = False,
        kinds: Sequence[str] = BLOCK_KINDS,
    ) -> None:
        super().__init__(backbone, share=share, wide=wide)
        self.bank, self.layout, self._kinds = bank, layout or Layout(), kinds

    def composer(self) -> Composer:
        """θ(λ) of the part that moves."""
        base = dict(self.backbone.visual.named_parameters())
        blocks = self.bank.blocks
        named = [name for name, _ in self.tower.named_parameters()]
        names = [name for name in named if blocks[blocks.index(name)].kind in self._kinds]
        if not names:
            raise ModelError(
                f"no block of this part of the tower is a {' or '.join(self._kinds)}. Let more of it move "
                "(share=1), or choose a method that moves others."
            )
        if len(names) == len(base):
            return Composer(base, self.bank, self.layout)
        return Composer({name: base[name] for name in names}, self.bank.select_blocks(names), self.layout)

    def coefficients(self, lam: Tensor | None = None) -> Coefficients:
        """What was learned of the part, over the whole tower: zero for all that stayed."""
        bank = self.bank
        if lam is None:
            return Coefficients.zeros(bank.tasks, bank.blocks)
        learned = self.composer().blocks
        part = Coefficients(lam.cpu(), self.layout, bank.tasks, learned)
        return part.widened(bank.blocks) if len(learned) < len(bank.blocks) else part
