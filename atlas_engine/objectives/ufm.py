"""UFM, unsupervised FixMatch: confident answers on a weak view are the targets of the strong view.

The test-time objective of aTLAS (arXiv 2407.02880), after FixMatch (NeurIPS 2020). Part of the method is in
the sampler: at each epoch it chooses images to trust, and fills up to a quarter of each batch with them.

    labels = trusted_labels(logits)                       # (N): class numbers, UNTRUSTED for all but a few
    loss = UFM()(logits_fn, Batch(weak, labels=labels[rows], strong=strong, progress=0.3))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from atlas_engine.config import Settings, setting
from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["UFM", "UNTRUSTED", "trusted_labels"]

UNTRUSTED = -1
"""The label of an image whose predicted class is not trusted."""

TRUST_ONE_IN, MAX_TRUSTED = 10, 100  # trusted of a class: a tenth of N / C images, at most 100


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

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Float[Tensor, ""]:
        """The mean cross-entropy of the images that count."""
        strong = batch.require_strong()
        with torch.no_grad():
            targets, weights = self.targets(logits_fn(batch.images), batch)
        kept = weights > 0
        if not kept.any():
            return weights.new_zeros(())
        losses = cross_entropy(logits_fn(strong[kept]).float(), targets[kept], reduction="none")
        return weighted_mean(losses, weights[kept])

    def targets(
        self, weak_logits: Float[Tensor, "B C"], batch: Batch
    ) -> tuple[Float[Tensor, "B C"], Float[Tensor, " B"]]:
        """The target of each image, and how much it counts."""
        # soften the weak view: p^a / Σ p^a, without leaving the logs
        targets = (weak_logits.float() * self.power).softmax(dim=-1)
        counts = targets.amax(dim=-1) > self.omega(batch.progress)
        # trusted images keep their label, however unsure they are
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
        """The confidence asked for: linear from ``threshold`` at progress 0 to 1 at progress 1."""
        return self.threshold + (1.0 - self.threshold) * progress


def trusted_labels(logits: Float[Tensor, "N C"]) -> Int[Tensor, " N"]:
    """The predicted class of the images that are trusted, and `UNTRUSTED` for the others.

    Of the images predicted as a class, the k with the highest confidence are trusted, where
    k = max(1, min(⌊N / C / 10⌋, 100)): 2,000 images of 10 classes give 20 a class, 5 images 1. A class that
    nothing was predicted as trusts nothing. Of equally confident images the earlier ones are taken.
    """
    count, classes = logits.shape
    if not count:
        return torch.empty(0, dtype=torch.long, device=logits.device)
    per_class = max(1, min(count // (classes * TRUST_ONE_IN), MAX_TRUSTED))
    top, predicted = logits.float().max(dim=-1)
    others = logits.float().scatter(1, predicted[:, None], -torch.inf).logsumexp(dim=-1)
    log_odds = top - others  # ln p / (1 − p): in the order of confidence, and never rounded to 1
    return torch.where(_rank_in_class(log_odds, predicted) < per_class, predicted, UNTRUSTED)


def _rank_in_class(confidence: Float[Tensor, " N"], predicted: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
    """How many images of the same predicted class are more confident than each one."""
    order = confidence.argsort(descending=True, stable=True)
    order = order[predicted[order].argsort(stable=True)]  # class by class, the most confident first
    sizes = predicted.bincount()
    class_starts = sizes.cumsum(0) - sizes
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device) - class_starts[predicted[order]]
    return ranks
