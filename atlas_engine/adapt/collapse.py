"""Checks of a model's answers that need no labels: is there anything to learn, and has it collapsed?

    before, after = answer_stats(zero_shot, weak, strong), answer_stats(adapted, …)
    collapse_reason(before, after)         # "" where all is well, else what is wrong, to follow a "because"

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

CLASSES_IN_USE = 0.27  # share of the classes; fewer in use is a collapse
CONFIDENCE_RISE = 0.9  # share of the room above the mean confidence before; a larger rise is a collapse
AGREEMENT_FALL = 0.05  # of the share of images whose two views get one answer; a larger fall is a collapse
SAME_FEATURES = 1e-4  # distance below which two features are of the same image
FEWEST_IMAGES = 40
"""Images that label-free learning needs. With 20, one odd image decided too much: single sets of the bank,
plain or corrupted, lost more than all of them won on the mean; with 40 they no longer did."""
INFORMED, INFORMED_IF_INCOMPLETE = 0.15, 0.2
"""What class names must know of the images to be built on: mutual information of image and answer over ln C,
where every class seems to be present and where some seem to be missing."""
SPREAD, SPREAD_OF_FEW, SPREAD_AT_MOST = 0.72, 0.6, 0.95
"""All classes are present where the entropy of their proportions is at least this share of ln C: 0.72 + 0.6 /
C, at most 0.95. Few sets with a third of their classes pass (assets/bench/TEST-TIME.md)."""


@dataclass(frozen=True)
class AnswerStats:
    """What can be said of answers without labels."""

    classes: float  # in use: e to the entropy of the mean answer, 1 … C
    confidence: float  # mean probability of the likeliest class
    agreement: float  # share of images whose weak and strong view get the same class


def answer_stats(
    clean: Float[Tensor, "N C"], weak: Float[Tensor, "N C"], strong: Float[Tensor, "N C"]
) -> AnswerStats:
    """Statistics of the logits of the images as they are, and of a weak and a strong view of each."""
    return AnswerStats(
        classes=_classes_in_use(clean),
        confidence=float(clean.float().softmax(dim=1).amax(dim=1).mean()),
        agreement=float((weak.argmax(dim=1) == strong.argmax(dim=1)).float().mean()),
    )


def collapse_reason(before: AnswerStats, after: AnswerStats) -> str:
    """What is wrong with the answers after adapting; empty where nothing is."""
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
    """Why answers that use too few classes should not be kept; empty where they use enough.

    >>> too_few_classes(50 * torch.eye(8)[:2].repeat(5, 1))
    'its answers crowded into 2.0 of 8 classes'
    """
    used, classes = _classes_in_use(logits), logits.shape[1]
    return (
        f"its answers crowded into {used:.1f} of {classes} classes" if used < CLASSES_IN_USE * classes else ""
    )


def nothing_to_learn_reason(features: Float[Tensor, "N D"]) -> str:
    """Why these images tell nothing about each other; empty where they may."""
    if len(features) < 2:
        return "one picture alone tells nothing of others"
    same = bool((features - features[:1]).norm(dim=1).amax() < SAME_FEATURES)
    return f"all {len(features)} pictures look the same to the model" if same else ""


def too_few_images(count: int) -> str:
    """Why so many images are too few to learn from without labels; empty where they may do."""
    if count >= FEWEST_IMAGES:
        return ""
    return f"{count} pictures are too few to learn from without labels ({FEWEST_IMAGES} or more may do)"


def uninformative_names(logits: Float[Tensor, "N C"], *, complete: bool) -> str:
    """Why the class names' answers are nothing to build on; empty where they are.

    What they know is I(image; answer) = H(mean answer) − mean H(answer), of at most ln C. Where classes are
    missing (not `complete`), answers that know little are mostly of the missing ones, so more is asked.
    """
    information = float(marginal_entropy(logits) - entropies(logits).mean()) / math.log(logits.shape[1])
    if information >= (INFORMED if complete else INFORMED_IF_INCOMPLETE):
        return ""
    return "the class names hardly tell these pictures apart, so there is nothing to build on"


def covers_all_classes(proportions: Float[Tensor, " C"]) -> bool:
    """Whether every class seems to be among the images, by the proportions found.

    Where classes are missing, an objective that rewards using all of them invents them.
    """
    classes = len(proportions)
    spread = -float(torch.xlogy(proportions, proportions).sum()) / math.log(classes)
    return spread >= min(SPREAD_AT_MOST, SPREAD + SPREAD_OF_FEW / classes)


def _classes_in_use(logits: Float[Tensor, "N C"]) -> float:
    return math.exp(float(marginal_entropy(logits)))
