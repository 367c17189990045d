"""SimCLR: two views of an image are alike, views of two images are not (Chen et al., ICML 2020).

SimCLR compares features, not class logits. Any function from images to vectors serves it, so its row in
`registry` asks for ``on_features``: the tower gets the identity as its head, and its "logits" are the
features themselves. (Class logits would be C numbers: with few classes they hold little of an image.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from atlas_engine.config import Settings, setting
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["SimCLR"]


@dataclass(frozen=True, kw_only=True)
class SimCLR(Settings):
    """NT-Xent: −log of exp(z·z⁺/τ) / Σ exp(z·z′/τ), averaged over all views z of the batch.

    z⁺ is the other view of the same image, z′ goes over all views but z itself. Where all vectors are equal
    it is ln(2B − 1); one image alone costs 0.
    """

    temperature: float = setting(0.1, help="τ of the softmax over similarities", low=1e-3)

    additive: ClassVar[bool] = False  # every image is compared with every other

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Float[Tensor, ""]:
        """The mean contrast of the batch. An image of weight 0 is left out of all comparisons."""
        weak, strong, weights = batch.images, batch.require_strong(), batch.weights
        if weights is not None:
            counts = weights > 0
            weak, strong, weights = weak[counts], strong[counts], weights[counts]
        if not len(weak):
            return torch.zeros((), device=weak.device)
        z = normalize(logits_fn(torch.cat([weak, strong])).float(), dim=-1)  # (2B D)
        itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
        similarities = (z @ z.T / self.temperature).masked_fill(itself, -torch.inf)  # (2B 2B)
        positives = torch.arange(len(z), device=z.device).roll(len(weak))  # (2B): the other view's row
        losses = cross_entropy(similarities, positives, reduction="none")
        return weighted_mean(losses, None if weights is None else weights.repeat(2))
