"""How a model is doing that nobody can mark: signs of life without labels. Knows nothing of towers.

    before, after = vitals_of(zero_shot, weak, strong), vitals_of(adapted, …)
    alarm(before, after)                    # "" where all is well, else what is wrong, in a sentence's part

A collapse shows in three ways: the answers crowd into fewer classes, the model grows sure of everything, or
two views of one picture no longer get the same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from atlas_engine.entropies import entropies, marginal_entropy

__all__ = ["Vitals", "alarm", "all_there", "doubtful", "nothing_to_learn", "reach", "vitals_of"]

FEWER = 0.75  # classes in use, as a share of before, below which answers crowd
SURER = 0.35  # growth of the mean confidence that no honest step brings
UNSTEADY = 0.05  # fall of the agreement between views
SAME = 1e-4  # distance below which two features are of the same picture
REACH, REACH_OF_ALL = 0.3, 1.6
"""Pictures that the less used half of the classes has, as a share of an equal part, below which it is safer
not to learn; of few classes more is asked, 1.6 in C. Where classes are missing, an objective that pays for
using all of them invents them."""
SUREST, REACH_OF_SURE = 0.7, 0.25
"""All classes are there where the same is so of the surest pictures, by answers in proportion. No roll of the
bank's sets with a third of the classes passed this bound."""
LEAST = 40
"""Pictures below which one odd picture decides too much: with 20, single sets of the bank, plain or damaged,
lost more than all won on their mean; with 40 no longer."""
INFORMED = 0.15  # below it zero-shot hardly knows, and what is built on it is a gamble, won or lost by a lot


@dataclass(frozen=True)
class Vitals:
    """What can be told of answers without labels."""

    classes: float  # in use: e to the entropy of the mean answer, 1 … C
    confidence: float  # mean probability of the likeliest class
    agreement: float  # share of pictures whose weak and strong view get the same class


def vitals_of(clean: Tensor, weak: Tensor, strong: Tensor) -> Vitals:
    """Of the logits (N C) of the pictures as they are, of a weak and of a strong view of each."""
    return Vitals(
        classes=_in_use(clean),
        confidence=float(clean.float().softmax(dim=1).amax(dim=1).mean()),
        agreement=float((weak.argmax(dim=1) == strong.argmax(dim=1)).float().mean()),
    )


def alarm(before: Vitals, after: Vitals) -> str:
    """What is wrong with the answers after adapting, to follow a `because`; empty where nothing is."""
    if not all(map(math.isfinite, (after.classes, after.confidence, after.agreement))):
        return "its answers were no longer numbers"
    if after.classes < FEWER * before.classes:
        return (
            f"its answers crowded into {after.classes:.1f} classes, where zero-shot used {before.classes:.1f}"
        )
    if after.confidence > before.confidence + SURER:
        return f"it grew sure of everything ({before.confidence:.0%} before, {after.confidence:.0%} after)"
    if after.agreement < before.agreement - UNSTEADY:
        return (
            f"two views of a picture agreed less often ({after.agreement:.0%}, and {before.agreement:.0%} by "
            "zero-shot)"
        )
    return ""


def nothing_to_learn(features: Tensor) -> str:
    """Why pictures (N D) tell nothing of each other, to follow a `because`; empty where they may."""
    if len(features) < 2:
        return "one picture alone tells nothing of others"
    same = bool((features - features[:1]).norm(dim=1).amax() < SAME)
    return f"all {len(features)} pictures look the same to the model" if same else ""


def doubtful(names: Tensor, centres: Tensor) -> str:
    """Why it is safer to keep zero-shot, to follow a `because`; empty where it is not.

    By the answers (N C) of the class names and of the class centres among the pictures (`heads.anchored`).
    What the names know is the mutual information of picture and answer, of which there can be ln C.
    """
    count, classes = names.shape
    if count < LEAST:
        return f"{count} pictures are too few to learn from without labels ({LEAST} or more may do)"
    told = float(marginal_entropy(names) - entropies(names).mean()) / math.log(classes)
    if told < INFORMED:
        return "the class names hardly tell these pictures apart, so there is nothing to build on"
    if reach(centres) < max(REACH, REACH_OF_ALL / classes):
        few = int((centres.argmax(dim=1).bincount(minlength=classes) > 0).sum())
        return (
            f"the pictures seem to show only some of the {classes} classes ({few} are answered, and half of "
            "all hardly ever), and what these share cannot be told from what all pictures do"
        )
    return ""


def all_there(proportioned: Tensor) -> bool:
    """Whether every class seems to be among the pictures, by the answers (N C) of a head in proportion."""
    probs = proportioned.float().softmax(dim=1)
    best, second = probs.topk(2, dim=1).values.unbind(dim=1)
    surest = (best - second).topk(max(1, int(SUREST * len(probs)))).indices
    return reach(proportioned[surest]) >= REACH_OF_SURE


def reach(logits: Tensor) -> float:
    """How much the less used half of the classes is used, 1 for as much as the others; by answers (N C)."""
    count, classes = logits.shape
    used = logits.argmax(dim=1).bincount(minlength=classes).float().sort().values
    return float(used[: max(1, classes // 2)].mean()) * classes / count


def _in_use(logits: Tensor) -> float:
    return math.exp(float(marginal_entropy(logits)))
