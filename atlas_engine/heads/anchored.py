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

from atlas_engine.heads.base import Evidence, text_logits
from atlas_engine.heads.probe import Probe

__all__ = ["anchored", "from_evidence", "proportions_of"]

ANCHOR = 20.0  # a: pictures that a class name is worth
SLOPE = 0.2  # γ: how far apart pictures of two classes lie, for a distance of 1 between their names
CALM = 30.0  # pictures at which centres have half of their weight
ROUNDS = 5
SMALLEST = 1e-3  # mean square distance that is taken for none


def anchored(features: Tensor, text: Tensor, *, logit_scale: float, anchor: float = ANCHOR) -> Probe:
    """The head for pictures (N D) of classes (C D), rows of length 1; no pictures give zero-shot."""
    probe = Probe(logit_scale * text, text.new_zeros(len(text)))
    if not len(features):
        return probe
    z = text_logits(features, text, logit_scale=logit_scale).softmax(dim=1)
    for _ in range(ROUNDS):
        probe = _linear(features, z, text, logit_scale=logit_scale, anchor=anchor)
        z = probe.logits(features).softmax(dim=1)
    return probe


def proportions_of(logits: Tensor, *, rounds: int = 1) -> Tensor:
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


def from_evidence(evidence: Evidence) -> Probe:
    """The head for the evidence's pictures; its labels are not looked at."""
    return anchored(evidence.features, evidence.text, logit_scale=evidence.logit_scale)


def _linear(features: Tensor, z: Tensor, text: Tensor, *, logit_scale: float, anchor: float) -> Probe:
    """The answer that soft assignments z (N C) lead to."""
    offsets = SLOPE * (text - text.mean(dim=0))  # (C D)
    names = (features - z @ offsets).mean(dim=0) + offsets
    counts = z.sum(dim=0)[:, None]  # (C 1)
    centres = names + (z.T @ features - counts * names) / (counts + anchor)
    spread = (z * torch.cdist(features, centres).square()).sum() / len(features)
    weight = len(features) / (len(features) + CALM) * logit_scale / spread.clamp_min(SMALLEST)
    return Probe(logit_scale * text + weight * centres, -0.5 * weight * centres.square().sum(dim=1))
