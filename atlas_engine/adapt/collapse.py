"""Checks that need no labels: can anything be learned from these images, and has the model collapsed?

    before, after = answer_stats(zero_shot, weak, strong), answer_stats(adapted, …)
    collapse_reason(before, after)         # "" where all is well, else the end of "…, because"

A collapsed model answers with few classes, is confident of everything, or gives two views of one image
different answers. The bounds were chosen on the bank's own data sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from atlas_engine.entropies import entropies, marginal_entropy

__all__ = [
    "FEWEST_IMAGES",
    "AnswerStats",
    "answer_stats",
    "collapse_reason",
    "covers_all_classes",
    "nothing_to_learn_reason",
    "too_few_classes",
    "too_few_images",
    "uninformative_names",
]

CLASSES_IN_USE = 0.27  # collapsed where a smaller share of the classes is in use
CONFIDENCE_RISE = 0.9  # collapsed where 1 − confidence shrinks by a larger share
AGREEMENT_FALL = 0.05  # collapsed where the agreement of two views falls by more
SAME_FEATURES = 1e-4  # distance below which two features are of the same image
FEWEST_IMAGES = 40
"""The fewest images for learning without labels. With 20, single data sets of the bank, plain or corrupted,
lost more than the mean over all of them gained; with 40 they no longer did."""
INFORMED, INFORMED_IF_INCOMPLETE = 0.15, 0.2
"""The least mutual information of image and zero-shot answer, as a share of ln C, that is enough to learn
from: where every class seems to be present, and where some seem to be missing."""
SPREAD, SPREAD_OF_FEW, SPREAD_AT_MOST = 0.72, 0.6, 0.95
"""All classes count as present where the entropy of their proportions is at least min(0.72 + 0.6 / C, 0.95)
of ln C. Few sets with a third of their classes pass (assets/bench/TEST-TIME.md)."""


@dataclass(frozen=True)
class AnswerStats:
    """Statistics of a model's answers that need no labels."""

    classes: float  # effective number in use: exp of the entropy of the mean answer, 1 … C
    confidence: float  # mean probability of the likeliest class
    agreement: float  # share of images whose weak and strong view get the same class


def answer_stats(
    clean: Float[Tensor, "N C"], weak: Float[Tensor, "N C"], strong: Float[Tensor, "N C"]
) -> AnswerStats:
    """Statistics of the logits of the unaugmented images, and of a weak and a strong view of each."""
    return AnswerStats(
        classes=_classes_in_use(clean),
        confidence=float(clean.float().softmax(dim=1).amax(dim=1).mean()),
        agreement=float((weak.argmax(dim=1) == strong.argmax(dim=1)).float().mean()),
    )


def collapse_reason(before: AnswerStats, after: AnswerStats) -> str:
    """Which sign of collapse the answers show after adapting; empty where they show none."""
    if not all(map(math.isfinite, (after.classes, after.confidence, after.agreement))):
        return "its answers were no longer numbers"
    if after.confidence - before.confidence > CONFIDENCE_RISE * (1 - before.confidence):
        return f"it grew sure of everything ({before.confidence:.0%} before, {after.confidence:.0%} after)"
    if after.agreement < before.agreement - AGREEMENT_FALL:
        return (
            f"two views of a picture agreed less often ({after.agreement:.0%}, and {before.agreement:.0%} by "
            "zero-shot)"
        )
    return ""


def too_few_classes(logits: Float[Tensor, "N C"]) -> str:
    """That the answers use too few classes; empty where they use enough.

    >>> too_few_classes(50 * torch.eye(8)[:2].repeat(5, 1))
    'its answers crowded into 2.0 of 8 classes'
    """
    used, classes = _classes_in_use(logits), logits.shape[1]
    return (
        f"its answers crowded into {used:.1f} of {classes} classes" if used < CLASSES_IN_USE * classes else ""
    )


def nothing_to_learn_reason(features: Float[Tensor, "N D"]) -> str:
    """Why nothing can be learned from these images; empty where something can."""
    if len(features) < 2:
        return "one picture alone tells nothing of others"
    same = bool((features - features[:1]).norm(dim=1).amax() < SAME_FEATURES)
    return f"all {len(features)} pictures look the same to the model" if same else ""


def too_few_images(count: int) -> str:
    """That `count` images are too few to learn from without labels; empty where they suffice."""
    if count >= FEWEST_IMAGES:
        return ""
    return f"{count} pictures are too few to learn from without labels ({FEWEST_IMAGES} or more may do)"


def uninformative_names(logits: Float[Tensor, "N C"], *, complete: bool) -> str:
    """That zero-shot answers carry too little information to learn from; empty where they carry enough.

    The information is I(image; answer) = H(mean answer) − mean H(answer), at most ln C. The bound is higher
    where classes are missing (not `complete`): uninformative answers are then mostly of missing classes.
    """
    information = float(marginal_entropy(logits) - entropies(logits).mean()) / math.log(logits.shape[1])
    if information >= (INFORMED if complete else INFORMED_IF_INCOMPLETE):
        return ""
    return "the class names hardly tell these pictures apart, so there is nothing to build on"


def covers_all_classes(proportions: Float[Tensor, " C"]) -> bool:
    """Whether every class seems to be among the images, by their estimated proportions.

    An objective that rewards using all classes assigns images to missing ones, so it must not be used there.
    """
    classes = len(proportions)
    spread = -float(torch.xlogy(proportions, proportions).sum()) / math.log(classes)
    return spread >= min(SPREAD_AT_MOST, SPREAD + SPREAD_OF_FEW / classes)


def _classes_in_use(logits: Float[Tensor, "N C"]) -> float:
    return math.exp(float(marginal_entropy(logits)))
