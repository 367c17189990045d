"""Class centres found among unlabelled features, anchored to the class names. Knows nothing of towers.

The pictures of a domain lie around a centre of their own, and a class beside where its name points:

    μ_k = m + γ (t_k − t̄) + δ_k                              the centre of class k
    m   = mean of f_i − γ Σ_k z_ik (t_k − t̄)                 the domain, once classes are accounted for
    δ_k = Σ_i z_ik (f_i − m − γ (t_k − t̄)) / (N_k + a)       what its pictures add, shrunk by the anchor a
    z   = softmax of  s f·t_k + s w (f·μ_k − ½ ‖μ_k‖²) / v   with v the mean square distance to μ

solved in turn from zero-shot's z, with w = N / (N + calm): few pictures move little. After the idea of StatA
(CVPR 2025): a class that no picture belongs to keeps its name's centre, so few classes among many do not
break it. Unlike there, the domain has a centre of its own, the spread is one number, and no graph joins the
pictures. The answer is linear in f, so that it is kept as a probe.
"""

from __future__ import annotations

import torch
from torch import Tensor

from atlas_engine.entropies import divergence, entropies
from atlas_engine.heads.base import LabelledFeatures, text_logits
from atlas_engine.heads.probe import Probe

__all__ = [
    "anchored_from_evidence",
    "balanced_from_evidence",
    "estimate_proportions",
    "fit_anchored_head",
    "fit_balanced_head",
]

ANCHOR = 20.0  # a: pictures that a class name is worth
SLOPE = 0.2  # γ: how far apart pictures of two classes lie, for a distance of 1 between their names
CALM = 30.0  # pictures at which centres have half of their weight
ROUNDS = 5
SMALLEST = 1e-3  # mean square distance that is taken for none


def fit_anchored_head(features: Tensor, text: Tensor, *, logit_scale: float, anchor: float = ANCHOR) -> Probe:
    """The head for pictures (N D) of classes (C D), rows of length 1; no pictures give zero-shot."""
    probe = Probe(logit_scale * text, text.new_zeros(len(text)))
    if not len(features):
        return probe
    z = text_logits(features, text, logit_scale=logit_scale).softmax(dim=1)
    for _ in range(ROUNDS):
        probe = _linear(features, z, text, logit_scale=logit_scale, anchor=anchor)
        z = probe.logits(features).softmax(dim=1)
    return probe


def estimate_proportions(logits: Tensor, *, rounds: int = 1) -> Tensor:
    """How often each class is there (C), by answers (N C) that take all to be as frequent.

    Expectation and maximisation in turn (Saerens, Latinne and Decaestecker, 2002): the first round is the
    mean answer; each further one asks anew with the proportions so far, and is further from equal ones.
    """
    probs = logits.float().softmax(dim=1)
    found = probs.mean(dim=0)
    for _ in range(rounds - 1):
        weighed = probs * found
        found = (weighed / weighed.sum(dim=1, keepdim=True)).mean(dim=0)
    return found


def anchored_from_evidence(evidence: LabelledFeatures) -> Probe:
    """The head for the evidence's pictures; its labels are not looked at."""
    return fit_anchored_head(evidence.features, evidence.text, logit_scale=evidence.logit_scale)


def _linear(features: Tensor, z: Tensor, text: Tensor, *, logit_scale: float, anchor: float) -> Probe:
    """The answer that soft assignments z (N C) lead to."""
    offsets = SLOPE * (text - text.mean(dim=0))  # (C D)
    names = (features - z @ offsets).mean(dim=0) + offsets
    counts = z.sum(dim=0)[:, None]  # (C 1)
    centres = names + (z.T @ features - counts * names) / (counts + anchor)
    spread = (z * torch.cdist(features, centres).square()).sum() / len(features)
    weight = len(features) / (len(features) + CALM) * logit_scale / spread.clamp_min(SMALLEST)
    return Probe(logit_scale * text + weight * centres, -0.5 * weight * centres.square().sum(dim=1))


# ---- Sure answers that use every class as often as it is there, among unlabelled features. No towers
# here. p = softmax(f Vᵀ + b) mean of H(p) + KL(mean of p ‖ π) + ‖V − V₀‖² / (2 c N) made small by L-BFGS,
# from V₀ and b₀ The first term wants sure answers, the second each class in its proportion π. Where all
# are alike the two are, but for a constant, the information that answers tell of pictures (RIM; Krause,
# Perona and Gomes, NIPS 2010). V₀ is a head that knows the class names, and the pull back to it falls as
# 1/N. V = V₀ + Aᵀ F has N × C unknowns however wide the features are. Where classes are missing among the
# pictures, equal proportions invent them: ask first whether all are there (`adapt.vitals`).
STRENGTH = 0.0075  # c as a share of logit_scale²; a third of it, and three times, are as good
ITERATIONS = 30


def fit_balanced_head(
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


def balanced_from_evidence(evidence: LabelledFeatures) -> Probe:
    """The head for the evidence's pictures, from the class names; its labels are not looked at."""
    start = Probe.start(evidence, centre="text")
    return fit_balanced_head(evidence.features, start, logit_scale=evidence.logit_scale)
