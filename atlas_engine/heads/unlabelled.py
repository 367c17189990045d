"""Heads that are fitted to images without labels: class centres, and confident answers in proportion.

**Anchored head.** The images of a domain lie around a common centre m, and the centre of each class lies near
where its name points from there:

    μ_k = m + γ (t_k − t̄) + δ_k                              the centre of class k
    m   = mean of f_i − γ Σ_k z_ik (t_k − t̄)                 the domain, once classes are accounted for
    δ_k = Σ_i z_ik (f_i − m − γ (t_k − t̄)) / (N_k + a)       what its images add, shrunk by the anchor a
    z   = softmax of  s f·t_k + s w (f·μ_k − ½ ‖μ_k‖²) / v   with v the mean square distance to μ

solved in turn from zero-shot's z, with w = N / (N + 30): few images move little. This follows StatA (CVPR
2025): a class that no image belongs to keeps its name's centre, so few classes among many do not break it.
Unlike StatA, the domain has a centre of its own, the spread is one number, and no graph joins the images.

**Balanced head.** Answers p = softmax(f Vᵀ + b) that are confident and use every class in its proportion π:

    mean of H(p) + KL(mean of p ‖ π) + ‖V − V₀‖² / (2 c N)   minimised by L-BFGS from V₀ and b₀

With equal proportions the first two terms are, but for a constant, minus the mutual information of images and
answers (RIM; Krause, Perona and Gomes, NIPS 2010). V₀ is a head that knows the class names; the pull back to
it falls as 1/N. V = V₀ + Aᵀ F has N × C unknowns however wide the features are. Where classes are missing
among the images, equal proportions invent them: check first that all are there (`adapt.collapse`).

Both heads are linear in f, so both are a `Probe`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from atlas_engine.entropies import divergence, entropies
from atlas_engine.heads.base import text_logits
from atlas_engine.heads.probe import REFERENCE_LOGIT_SCALE, Probe

__all__ = ["estimate_proportions", "fit_anchored_head", "fit_balanced_head"]

ANCHOR = 20.0  # a: images that a class name is worth
TEXT_SLOPE = 0.2  # γ: distance between images of two classes, for a distance of 1 between their names
HALF_WEIGHT_IMAGES = 30.0  # images at which centres have half of their weight
ROUNDS = 5
MIN_SPREAD = 1e-3  # smallest mean square distance v
BALANCED_INVERSE_STRENGTH = 0.0075 * REFERENCE_LOGIT_SCALE**2
"""c, the same at every logit scale (see `heads.probe`); a third of it and three times it are as good."""
BALANCED_ITERATIONS = 30


def fit_anchored_head(
    features: Float[Tensor, "N D"],
    text: Float[Tensor, "C D"],
    *,
    logit_scale: float,
    anchor: float = ANCHOR,
) -> Probe:
    """The anchored head for unlabelled features, rows of length 1; without images it is zero-shot."""
    probe = Probe(logit_scale * text, text.new_zeros(len(text)))
    if not len(features):
        return probe
    assignments = text_logits(features, text, logit_scale=logit_scale).softmax(dim=1)
    for _ in range(ROUNDS):
        probe = _probe_from_assignments(features, assignments, text, logit_scale=logit_scale, anchor=anchor)
        assignments = probe.logits(features).softmax(dim=1)
    return probe


def _probe_from_assignments(
    features: Float[Tensor, "N D"],
    assignments: Float[Tensor, "N C"],
    text: Float[Tensor, "C D"],
    *,
    logit_scale: float,
    anchor: float,
) -> Probe:
    """The linear head of the class centres that soft assignments z lead to."""
    # the domain's centre, and from it where each name points
    offsets = TEXT_SLOPE * (text - text.mean(dim=0))  # (C D)
    name_centres = (features - assignments @ offsets).mean(dim=0) + offsets
    # move each centre to the mean of its images, as far as the anchor lets it
    counts = assignments.sum(dim=0)[:, None]  # (C 1)
    centres = name_centres + (assignments.T @ features - counts * name_centres) / (counts + anchor)
    # Gaussian classes of one spread are linear in f
    spread = (assignments * torch.cdist(features, centres).square()).sum() / len(features)
    trust = len(features) / (len(features) + HALF_WEIGHT_IMAGES)
    weight = trust * logit_scale / spread.clamp_min(MIN_SPREAD)
    return Probe(logit_scale * text + weight * centres, -0.5 * weight * centres.square().sum(dim=1))


def estimate_proportions(logits: Float[Tensor, "N C"], *, rounds: int = 1) -> Float[Tensor, " C"]:
    """How frequent each class is among images, from logits that take all classes to be equally frequent.

    Expectation maximisation (Saerens, Latinne and Decaestecker, 2002). The first round is the mean answer;
    each further one weighs the answers by the proportions so far, and moves further away from equal ones.
    """
    probs = logits.float().softmax(dim=1)
    proportions = probs.mean(dim=0)
    for _ in range(rounds - 1):
        weighted = probs * proportions
        proportions = (weighted / weighted.sum(dim=1, keepdim=True)).mean(dim=0)
    return proportions


def fit_balanced_head(
    features: Float[Tensor, "N D"],
    start: Probe,
    *,
    proportions: Float[Tensor, " C"] | None = None,
) -> Probe:
    """The balanced head for unlabelled features, rows of length 1, near ``start``; without images, ``start``.

    π is ``proportions``, or the same for every class.
    """
    if not len(features):
        return start
    gram, start_logits = features @ features.T, start.logits(features)
    pi = torch.full_like(start.bias, 1.0 / len(start.bias)) if proportions is None else proportions
    pull = 2.0 * BALANCED_INVERSE_STRENGTH * len(features)
    with torch.inference_mode(False), torch.enable_grad():
        gram, start_logits, pi = gram.clone(), start_logits.clone(), pi.clone()
        dual = torch.zeros_like(start_logits).requires_grad_()  # A (N C)
        shift = torch.zeros_like(start.bias).requires_grad_()
        optimiser = torch.optim.LBFGS(
            [dual, shift], max_iter=BALANCED_ITERATIONS, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimiser.zero_grad()
            change = gram @ dual
            logits = start_logits + change + shift
            value = entropies(logits).mean() + divergence(logits, pi) + (dual * change).sum() / pull
            torch.autograd.backward(value)
            return value

        optimiser.step(loss)  # type: ignore[no-untyped-call]
    return Probe(start.weight + dual.detach().T @ features, start.bias + shift.detach())
