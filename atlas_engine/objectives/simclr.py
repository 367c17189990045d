"""Two views of an image are alike, those of two images are not. Knows nothing of classes.

SimCLR (ICML 2020) compares features. It needs no more than a function from images to vectors, so it is run
on a subject whose head is the identity: its "logits" are the features themselves, of length 1, and nothing
else in the loop need know. (Under a class head it would compare C numbers: with few classes hardly anything
is left of a picture in them.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from atlas_engine.config import Settings, setting
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["SimCLR"]


@dataclass(frozen=True, kw_only=True)
class SimCLR(Settings):
    """NT-Xent: −log of exp(z·z⁺/τ) / Σ exp(z·z′/τ), meaned over all views z of the batch.

    z⁺ is the other view of the same image, z′ goes over all views but z itself. Where all vectors are equal
    it is ln(2B − 1); one image alone costs 0.
    """

    temperature: float = setting(0.1, help="τ: how much the nearest strangers count", low=1e-3)

    additive: ClassVar[bool] = False  # every image is measured against every other

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Tensor:
        """The mean contrast of the batch; images of no weight are not compared with either."""
        weak, strong, weights = batch.images, batch.strong_view(), batch.weights
        if weights is not None:
            counts = weights > 0
            weak, strong, weights = weak[counts], strong[counts], weights[counts]
        if not len(weak):
            return torch.zeros((), device=weak.device)
        z = normalize(logits_fn(torch.cat([weak, strong])).float(), dim=-1)  # (2B D)
        itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
        alike = (z @ z.T / self.temperature).masked_fill(itself, -torch.inf)  # (2B 2B)
        others = torch.arange(len(z), device=z.device).roll(len(weak))
        losses = cross_entropy(alike, others, reduction="none")
        return weighted_mean(losses, None if weights is None else weights.repeat(2))
