"""Sure answers that use every class as often as it is there, among unlabelled features. No towers here.

    p = softmax(f Vᵀ + b)
    mean of H(p) + KL(mean of p ‖ π) + ‖V − V₀‖² / (2 c N)     made small by L-BFGS, from V₀ and b₀

The first term wants sure answers, the second each class in its proportion π. Where all are alike the two
are, but for a constant, the information that answers tell of pictures (RIM; Krause, Perona and Gomes, NIPS
2010). V₀ is a head that knows the class names, and the pull back to it falls as 1/N. V = V₀ + Aᵀ F has N × C
unknowns however wide the features are. Where classes are missing among the pictures, equal proportions invent
them: ask first whether all are there (`adapt.vitals`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from atlas_engine.entropies import divergence, entropies
from atlas_engine.heads.base import Evidence
from atlas_engine.heads.probe import Probe

__all__ = ["balanced", "from_evidence"]

STRENGTH = 0.0075  # c as a share of logit_scale²; a third of it, and three times, are as good
ITERATIONS = 30


def balanced(
    features: Tensor, start: Probe, *, logit_scale: float, proportions: Tensor | None = None
) -> Probe:
    """The head for pictures (N D), rows of length 1, near one that was there; without any it stays.

    π is ``proportions`` (C), or the same for every class.
    """
    if not len(features):
        return start
    gram, before = features @ features.T, start.logits(features)
    pi = torch.full_like(start.bias, 1.0 / len(start.bias)) if proportions is None else proportions
    strength = 2.0 * STRENGTH * logit_scale**2 * len(features)
    with torch.inference_mode(False), torch.enable_grad():
        gram, before, pi = gram.clone(), before.clone(), pi.clone()
        shares = torch.zeros_like(before).requires_grad_()  # A (N C)
        shift = torch.zeros_like(start.bias).requires_grad_()
        optimiser = torch.optim.LBFGS([shares, shift], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            moved = gram @ shares
            logits = before + moved + shift
            value = entropies(logits).mean() + divergence(logits, pi) + (shares * moved).sum() / strength
            torch.autograd.backward(value)
            return value

        optimiser.step(loss)  # type: ignore[no-untyped-call]
    return Probe(start.weight + shares.detach().T @ features, start.bias + shift.detach())


def from_evidence(evidence: Evidence) -> Probe:
    """The head for the evidence's pictures, from the class names; its labels are not looked at."""
    start = Probe.start(evidence, centre="text")
    return balanced(evidence.features, start, logit_scale=evidence.logit_scale)
