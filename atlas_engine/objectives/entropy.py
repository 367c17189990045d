"""Sure answers, not all the same: entropy with marginal diversity. Knows nothing of labels.

Entropy alone (Tent, ICLR 2021) is smallest where every image gets the same answer. The entropy of the mean
answer, taken off, pays for answers that differ (as in SHOT, ICML 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from atlas_engine.config import Settings, setting
from atlas_engine.entropies import divergence, entropies, marginal_entropy
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["Entropy", "InProportion"]


@dataclass(frozen=True, kw_only=True)
class Entropy(Settings):
    """Mean of H(p) − diversity · H(mean of p), over the images by their weights.

    Two images sure of two different classes: 0 − ln 2 = −0.693. Both sure of the same class: 0 − 0. One image
    alone, at diversity 1, is 0 whatever its answer: there is nothing to learn from it.
    """

    diversity: float = setting(1.0, help="weight of the mean answer's entropy", low=0.0)

    additive: ClassVar[bool] = False

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Tensor:
        """The loss of the batch."""
        logits, weights = logits_fn(batch.images), batch.weights
        sureness = weighted_mean(entropies(logits), weights)
        return sureness - self.diversity * marginal_entropy(logits, weights)


# ---- Sure answers, each class as often as it is there: for pictures that may lack classes. No labels
# here. Entropy with marginal diversity (`objectives.entropy`) pays for answers of every class alike, and
# so invents those that are missing. Here the mean answer is drawn to proportions that were found before.
@dataclass(frozen=True, eq=False)
class InProportion:
    """Mean of H(p) + KL(mean of p ‖ proportions), over the images by their weights.

    Where all proportions are alike it is, but for ln C, entropy with its diversity at 1.
    """

    proportions: Tensor  # (C)

    additive: ClassVar[bool] = False

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Tensor:
        """The loss of the batch."""
        logits, weights = logits_fn(batch.images), batch.weights
        sureness = weighted_mean(entropies(logits), weights)
        return sureness + divergence(logits, self.proportions, weights)
