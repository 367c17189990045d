"""SAR: entropy of the images that are confident enough to learn from (Niu et al., ICLR 2023).

SAR has three parts. The filter of reliable images is here. Sharpness-aware gradients, taken at weights moved
uphill, and the reset of a run whose loss shows that it has collapsed are the loop's ``sharpness`` and
``collapse_below``, whose values `registry` sets. The filter is applied again at the moved weights, where the
paper keeps only images that pass it at both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from atlas_engine.config import Settings, setting
from atlas_engine.entropies import entropies
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["SAR"]


@dataclass(frozen=True, kw_only=True)
class SAR(Settings):
    """Mean of H(p) over the images with H(p) < E0 = reliable · ln C, and 0 where there are none.

    With 10 classes and reliable = 0.4, E0 = 0.92: an image at 0.8 for one class (H = 0.94) is left out,
    one at 0.9 (H = 0.54) is learned from.
    """

    reliable: float = setting(
        0.4, help="largest entropy of an image that counts, as a share of ln C", low=0.0
    )

    additive: ClassVar[bool] = False  # how many images count is known only after the forward pass

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Float[Tensor, ""]:
        """The mean entropy of the reliable images."""
        logits = logits_fn(batch.images)
        losses = entropies(logits)  # (B)
        reliable = (losses < self.reliable * math.log(logits.shape[-1])).float()
        return weighted_mean(losses, reliable if batch.weights is None else reliable * batch.weights)
