"""Unsupervised FixMatch: sure answers on a weak view teach the strong one. Knows nothing of true labels.

The paper's test-time objective. The batch source re-estimates whom to trust (`trusted_labels`) every epoch,
fills a quarter of each batch with them, and tells how far the run is; the rest happens here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from atlas_engine.config import Settings, setting
from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["MOST", "SHARE", "UFM", "UNTRUSTED", "trusted_labels"]


@dataclass(frozen=True, kw_only=True)
class UFM(Settings):
    """Σ w · CE(strong view, target) / Σ w, and 0 where no image has a weight.

    An image with a label is trusted: its target is that class, its w is 1. One labelled `UNTRUSTED` has the
    target σ(p) = p^½ / Σ p^½ from its weak view, and w is 1 where max σ(p) > ω, else 0; ω rises from
    ``threshold`` to 1 with the batch's progress. The power makes answers softer, not sharper, and thereby ω
    strict: of two classes p = (0.8, 0.2) becomes σ = (0.67, 0.33), and σ > 0.9 asks for p > 0.988.

    The gradient goes through the strong view alone, and only images with a weight are run through it.
    """

    power: float = setting(0.5, help="power on the weak view's probabilities", low=0.0)
    threshold: float = setting(0.9, help="confidence asked for at the start; 1 at the end", low=0.0, high=1.0)

    additive: ClassVar[bool] = False  # how many images count is known only after the weak view

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Tensor:
        """The mean cross-entropy of the images that count."""
        strong = batch.strong_view()
        with torch.no_grad():
            targets, weights = self.targets(logits_fn(batch.images), batch)
        kept = weights > 0
        if not kept.any():
            return weights.new_zeros(())
        losses = cross_entropy(logits_fn(strong[kept]).float(), targets[kept], reduction="none")
        return weighted_mean(losses, weights[kept])

    def targets(self, weak_logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """What each image should answer (B C), and how much it counts (B)."""
        targets = (weak_logits.float() * self.power).softmax(dim=-1)  # p^a / Σ p^a, without leaving the logs
        counts = targets.amax(dim=-1) > self.omega(batch.progress)
        if batch.labels is not None:
            if batch.labels.ndim != 1:
                raise ConfigError(
                    f"ufm takes class numbers (B), {UNTRUSTED} for an image that is not trusted, but got "
                    f"labels of shape {tuple(batch.labels.shape)}. Use trusted_labels."
                )
            trusted = batch.labels != UNTRUSTED
            known = one_hot(batch.labels.clamp(min=0), targets.shape[1]).to(targets.dtype)
            targets = torch.where(trusted[:, None], known, targets)
            counts = counts | trusted
        return targets, counts.float() if batch.weights is None else counts * batch.weights

    def omega(self, progress: float) -> float:
        """The confidence asked for: from ``threshold`` at progress 0 straight to 1 at progress 1."""
        return self.threshold + (1.0 - self.threshold) * progress


# ---- Which images to trust: the surest few of each predicted class. Tensors only; knows nothing of views.
# pseudo = trusted_labels(logits) # (N) class numbers, UNTRUSTED for all but a few chosen = (pseudo !=
# UNTRUSTED).nonzero() # whom a batch source draws a quarter of each batch from
UNTRUSTED = -1
"""The label of an image whose class we do not claim to know."""

SHARE, MOST = 10, 100  # one in SHARE of a class's fair part of the images, at most MOST


def trusted_labels(logits: Tensor) -> Tensor:
    """(N C) -> (N): the predicted class of the images that are trusted, and `UNTRUSTED` for the others.

    Of the images predicted as a class, the k with the highest confidence are trusted, where
    k = max(1, min(⌊N / C / 10⌋, 100)): 2,000 images of 10 classes give 20 a class, 5 images 1. A class that
    nothing was predicted as trusts nothing. Of equally sure images the earlier ones are taken.
    """
    count, classes = logits.shape
    if not count:
        return torch.empty(0, dtype=torch.long, device=logits.device)
    most = max(1, min(count // (classes * SHARE), MOST))
    top, predicted = logits.float().max(dim=-1)
    others = logits.float().scatter(1, predicted[:, None], -torch.inf).logsumexp(dim=-1)
    odds = top - others  # ln p / (1 − p): in the order of confidence, and never rounded to 1
    return torch.where(_rank_in_class(odds, predicted) < most, predicted, UNTRUSTED)


def _rank_in_class(sureness: Tensor, predicted: Tensor) -> Tensor:
    """(N): how many images of the same predicted class come before each one."""
    order = sureness.argsort(descending=True, stable=True)
    order = order[predicted[order].argsort(stable=True)]  # class by class, the surest first
    sizes = predicted.bincount()
    begins = sizes.cumsum(0) - sizes
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device) - begins[predicted[order]]
    return ranks
