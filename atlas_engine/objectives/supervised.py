"""Cross-entropy on labelled images: the few-shot objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["CrossEntropy"]


@dataclass(frozen=True)
class CrossEntropy:
    """−Σ_c y_c log softmax(logits)_c, averaged over the batch by its weights.

    With two classes and equal logits it is ln 2 = 0.693, whatever the label.
    """

    additive: ClassVar[bool] = True

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Float[Tensor, ""]:
        """The mean cross-entropy of the batch."""
        if batch.labels is None:
            raise ConfigError(
                f"cross-entropy needs labels, and {batch!r} has none. Choose an objective without."
            )
        losses = cross_entropy(logits_fn(batch.images).float(), batch.labels, reduction="none")  # (B)
        return weighted_mean(losses, batch.weights)
