"""Entropies of predictions, in nats: of each image, and of the mean over images."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["divergence", "entropies", "marginal_entropy"]

MIN_PROPORTION = 1e-6  # of a class: its logarithm stays finite


def entropies(logits: Tensor) -> Tensor:
    """(B C) -> (B): the entropy of each row, H = −Σ_c p_c ln p_c, from 0 to ln C."""
    log_probs = logits.float().log_softmax(dim=-1)
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def marginal_entropy(logits: Tensor, weights: Tensor | None = None) -> Tensor:
    """(B C) -> (): the entropy of the rows' weighted mean probabilities; 0 if no weight is positive."""
    log_marginal = _log_marginal(logits, weights)
    return -(log_marginal.exp() * log_marginal).sum()


def divergence(logits: Tensor, proportions: Tensor, weights: Tensor | None = None) -> Tensor:
    """(B C), (C) -> (): KL(the rows' weighted mean ‖ proportions); 0 if no weight is positive."""
    log_marginal = _log_marginal(logits, weights)
    if not len(log_marginal):
        return log_marginal.sum()
    return (log_marginal.exp() * (log_marginal - proportions.clamp_min(MIN_PROPORTION).log())).sum()


def _log_marginal(logits: Tensor, weights: Tensor | None) -> Tensor:
    """(B C) -> (C): ln of the rows' weighted mean probabilities; (0) if no weight is positive."""
    log_probs = logits.float().log_softmax(dim=-1)
    log_weights = torch.zeros_like(log_probs[:, 0])
    if weights is not None:
        log_probs, log_weights = log_probs[weights > 0], weights[weights > 0].float().log()
    if not len(log_probs):
        return log_probs.flatten()
    # In logs throughout: a class of probability 0 would give 0 · ln 0 = NaN otherwise.
    return (log_probs + log_weights[:, None]).logsumexp(dim=0) - log_weights.logsumexp(dim=0)
