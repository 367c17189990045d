"""Sure answers, each class as often as it is there: for pictures that may lack classes. No labels here.

Entropy with marginal diversity (`objectives.entropy`) pays for answers of every class alike, and so invents
those that are missing. Here the mean answer is drawn to proportions that were found before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from atlas_engine.entropies import divergence, entropies
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["InProportion"]


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
