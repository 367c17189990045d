"""How unsure answers are, one by one and taken together. Knows nothing of losses or heads."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["divergence", "entropies", "marginal_entropy"]

RAREST = 1e-6  # least proportion of a class


def entropies(logits: Tensor) -> Tensor:
    """(B C) -> (B): −Σ_c p_c ln p_c of each row, in nats, 0 … ln C."""
    log_probs = logits.float().log_softmax(dim=-1)
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def marginal_entropy(logits: Tensor, weights: Tensor | None = None) -> Tensor:
    """(B C) -> (): the entropy of the rows' weighted mean probabilities; 0 where nothing has weight."""
    log_marginal = _log_marginal(logits, weights)
    return -(log_marginal.exp() * log_marginal).sum()


def divergence(logits: Tensor, proportions: Tensor, weights: Tensor | None = None) -> Tensor:
    """(B C), (C) -> (): KL(the rows' weighted mean ‖ proportions); 0 where nothing has weight."""
    log_marginal = _log_marginal(logits, weights)
    if not len(log_marginal):
        return log_marginal.sum()
    return (log_marginal.exp() * (log_marginal - proportions.clamp_min(RAREST).log())).sum()


def _log_marginal(logits: Tensor, weights: Tensor | None) -> Tensor:
    """(B C) -> (C): ln of the rows' weighted mean probabilities; of no length where nothing has weight."""
    log_probs = logits.float().log_softmax(dim=-1)
    log_shares = torch.zeros_like(log_probs[:, 0])
    if weights is not None:
        log_probs, log_shares = log_probs[weights > 0], weights[weights > 0].float().log()
    if not len(log_probs):
        return log_probs.flatten()
    # In logs throughout: a class of no probability has a logarithm, so nothing here can become NaN.
    return (log_probs + log_shares[:, None]).logsumexp(dim=0) - log_shares.logsumexp(dim=0)
