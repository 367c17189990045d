"""Entropy minimisation without collapse: confident answers that are diverse, or in given proportions.

Entropy alone (Tent, ICLR 2021) is smallest where every image gets the same answer. Subtracting the entropy of
the mean answer (as SHOT, ICML 2020) rewards answers that differ. But it rewards all classes equally, and so
assigns images to classes that none of them show. `ProportionalEntropy` therefore pulls the mean answer to
proportions that were estimated before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from atlas_engine.config import Settings, setting
from atlas_engine.entropies import divergence, entropies, marginal_entropy
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["Entropy", "ProportionalEntropy"]


@dataclass(frozen=True, kw_only=True)
class Entropy(Settings):
    """Mean of H(p) − diversity · H(mean of p), over the images by their weights.

    Two images sure of two different classes: 0 − ln 2 = −0.693. Both sure of the same class: 0 − 0. One image
    alone, at diversity 1, is 0 whatever its answer: there is nothing to learn from it.
    """

    diversity: float = setting(1.0, help="weight of the mean answer's entropy", low=0.0)

    additive: ClassVar[bool] = False

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Float[Tensor, ""]:
        """The loss of the batch."""
        logits, weights = logits_fn(batch.images), batch.weights
        mean_entropy = weighted_mean(entropies(logits), weights)
        return mean_entropy - self.diversity * marginal_entropy(logits, weights)


@dataclass(frozen=True, eq=False)
class ProportionalEntropy:
    """Mean of H(p) + KL(mean of p ‖ proportions), over the images by their weights.

    With equal proportions it is `Entropy` at diversity 1, plus ln C.
    """

    proportions: Float[Tensor, " C"]

    additive: ClassVar[bool] = False

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Float[Tensor, ""]:
        """The loss of the batch."""
        logits, weights = logits_fn(batch.images), batch.weights
        mean_entropy = weighted_mean(entropies(logits), weights)
        return mean_entropy + divergence(logits, self.proportions, weights)
