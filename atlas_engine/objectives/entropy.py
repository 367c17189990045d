"""Sure answers, not all the same: entropy with marginal diversity. Knows nothing of labels.

Entropy alone (Tent, ICLR 2021) is smallest where every image gets the same answer. The entropy of the mean
answer, taken off, pays for answers that differ (as in SHOT, ICML 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from atlas_engine.config import Settings, setting
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["Entropy", "entropies", "marginal_entropy"]


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


def entropies(logits: Tensor) -> Tensor:
    """(B C) -> (B): −Σ_c p_c ln p_c of each row, in nats, 0 … ln C."""
    log_probs = logits.float().log_softmax(dim=-1)
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def marginal_entropy(logits: Tensor, weights: Tensor | None = None) -> Tensor:
    """(B C) -> (): the entropy of the rows' weighted mean probabilities; 0 where nothing has weight."""
    log_probs = logits.float().log_softmax(dim=-1)
    log_shares = torch.zeros_like(log_probs[:, 0])
    if weights is not None:
        log_probs, log_shares = log_probs[weights > 0], weights[weights > 0].float().log()
    if not len(log_probs):
        return log_probs.sum()
    # In logs throughout: a class of no probability has a logarithm, so nothing here can become NaN.
    log_marginal = (log_probs + log_shares[:, None]).logsumexp(dim=0) - log_shares.logsumexp(dim=0)  # (C)
    return -(log_marginal.exp() * log_marginal).sum()
