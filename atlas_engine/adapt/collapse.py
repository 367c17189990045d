"""How a model is doing that nobody can mark: signs of life without labels. Knows nothing of towers.

    before, after = vitals_of(zero_shot, weak, strong), vitals_of(adapted, …)
    alarm(before, after)                    # "" where all is well, else what is wrong, in a sentence's part

A collapse shows in three ways: the answers crowd into few classes, the model grows sure of everything, or two
views of one picture no longer get the same answer. The bounds were chosen on rolls of the bank's sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.entropies import entropies, marginal_entropy

__all__ = [
    "AnswerStats",
    "answer_stats",
    "collapse_reason",
    "covers_all_classes",
    "nothing_to_learn_reason",
    "too_few_classes",
    "too_few_images",
    "uninformative_names",
]

CROWDED = 0.27  # share of the classes; answers that use fewer crowd
SURER = 0.9  # share of the room above the mean confidence before that no honest step takes
UNSTEADY = 0.05  # fall of the agreement between views
SAME = 1e-4  # distance below which two features are of the same picture
FEWEST_IMAGES = 40
"""Pictures below which one odd picture decides too much: with 20, single sets of the bank, plain or damaged,
lost more than all won on their mean; with 40 no longer."""
INFORMED, INFORMED_OF_SOME = 0.15, 0.2
"""What class names have to know of the pictures, as a share of all there is to know, for anything to be built
on it: where every class seems to be there, and where some seem to be missing."""
SPREAD, SPREAD_OF_FEW, SPREAD_OF_ALL = 0.72, 0.6, 0.95
"""All classes are there where the proportions found have at least this share of the highest entropy: 72 % and
60 % / C, at most 95 %. Of rolls with a third of their classes few pass (assets/bench/TEST-TIME.md)."""


@dataclass(frozen=True)
class AnswerStats:
    """What can be told of answers without labels."""

    classes: float  # in use: e to the entropy of the mean answer, 1 … C
    confidence: float  # mean probability of the likeliest class
    agreement: float  # share of pictures whose weak and strong view get the same class


def answer_stats(clean: Tensor, weak: Tensor, strong: Tensor) -> AnswerStats:
    """Of the logits (N C) of the pictures as they are, of a weak and of a strong view of each."""
    return AnswerStats(
        classes=_in_use(clean),
        confidence=float(clean.float().softmax(dim=1).amax(dim=1).mean()),
        agreement=float((weak.argmax(dim=1) == strong.argmax(dim=1)).float().mean()),
    )


def collapse_reason(before: AnswerStats, after: AnswerStats) -> str:
    """What is wrong with the answers after adapting, to follow a `because`; empty where nothing is."""
    if not all(map(math.isfinite, (after.classes, after.confidence, after.agreement))):
        return "its answers were no longer numbers"
    if after.confidence - before.confidence > SURER * (1 - before.confidence):
        return f"it grew sure of everything ({before.confidence:.0%} before, {after.confidence:.0%} after)"
    if after.agreement < before.agreement - UNSTEADY:
        return (
            f"two views of a picture agreed less often ({after.agreement:.0%}, and {before.agreement:.0%} by "
            "zero-shot)"
        )
    return ""


def too_few_classes(answers: Tensor) -> str:
    """Why answers (N C) had better not be kept, to follow a `because`; empty where they use enough classes.

    >>> crowded(50 * torch.eye(8)[:2].repeat(5, 1))
    'its answers crowded into 2.0 of 8 classes'
    """
    used, classes = _in_use(answers), answers.shape[1]
    return f"its answers crowded into {used:.1f} of {classes} classes" if used < CROWDED * classes else ""


def nothing_to_learn_reason(features: Tensor) -> str:
    """Why pictures (N D) tell nothing of each other, to follow a `because`; empty where they may."""
    if len(features) < 2:
        return "one picture alone tells nothing of others"
    same = bool((features - features[:1]).norm(dim=1).amax() < SAME)
    return f"all {len(features)} pictures look the same to the model" if same else ""


def too_few_images(count: int) -> str:
    """Why so many pictures are too few to learn from, to follow a `because`; empty where they may do."""
    if count >= FEWEST_IMAGES:
        return ""
    return f"{count} pictures are too few to learn from without labels ({FEWEST_IMAGES} or more may do)"


def uninformative_names(names: Tensor, *, complete: bool) -> str:
    """Why answers of class names (N C) are nothing to build on, to follow a `because`; empty where they are.

    What they know is the mutual information of picture and answer, of which there can be ln C. Where classes
    are missing, answers that know little are mostly of those.
    """
    told = float(marginal_entropy(names) - entropies(names).mean()) / math.log(names.shape[1])
    if told >= (INFORMED if complete else INFORMED_OF_SOME):
        return ""
    return "the class names hardly tell these pictures apart, so there is nothing to build on"


def covers_all_classes(proportions: Tensor) -> bool:
    """Whether every class seems to be among the pictures, by the proportions found of them (C).

    Where classes are missing, an objective that pays for using all of them invents them.
    """
    classes = len(proportions)
    spread = -float(torch.xlogy(proportions, proportions).sum()) / math.log(classes)
    return spread >= min(SPREAD_OF_ALL, SPREAD + SPREAD_OF_FEW / classes)


def _in_use(logits: Tensor) -> float:
    return math.exp(float(marginal_entropy(logits)))
