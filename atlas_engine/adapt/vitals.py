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

__all__ = ["Vitals", "alarm", "all_there", "doubtful", "nothing_to_learn", "reach", "too_few", "vitals_of"]

FEWER = 0.75  # classes in use, as a share of before, below which answers crowd
SURER = 0.35  # growth of the mean confidence that no honest step brings
UNSTEADY = 0.05  # fall of the agreement between views
SAME = 1e-4  # distance below which two features are of the same picture
REACH, REACH_OF_ALL = 0.3, 1.6
"""Pictures that the less used half of the classes has, as a share of an equal part, below which centres had
better not answer; of few classes more is asked, 1.6 in C."""
SUREST, REACH_OF_SURE, REACH_OF_FEW = 0.7, 0.25, 2.5
"""All classes are there where the less used half of them has at least 25 % of an equal part among the surest
pictures, by answers in proportion; of few classes more is asked, 2.5 in C. Chosen on rolls of the bank's
sets, of 4, 6 and 10 classes, plain, in fog and in noise: hardly any with a third of its classes passes."""
LEAST = 40
"""Pictures below which one odd picture decides too much: with 20, single sets of the bank, plain or damaged,
lost more than all won on their mean; with 40 no longer."""
INFORMED = 0.15  # below it zero-shot hardly knows, and centres built on it are a gamble, won or lost by a lot


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


def too_few(count: int) -> str:
    """Why so many pictures are too few to learn from, to follow a `because`; empty where they may do."""
    if count >= LEAST:
        return ""
    return f"{count} pictures are too few to learn from without labels ({LEAST} or more may do)"


def doubtful(names: Tensor, centres: Tensor) -> bool:
    """Whether class centres among pictures (`heads.anchored`) had better not answer.

    By the answers (N C) of the class names and of the centres. What the names know is the mutual information
    of picture and answer, of which there can be ln C.
    """
    count, classes = names.shape
    told = float(marginal_entropy(names) - entropies(names).mean()) / math.log(classes)
    return count < LEAST or told < INFORMED or reach(centres) < max(REACH, REACH_OF_ALL / classes)


def all_there(proportioned: Tensor) -> bool:
    """Whether every class seems to be among the pictures, by the answers (N C) of a head in proportion.

    Where classes are missing, an objective that pays for using all of them invents them.
    """
    count, classes = proportioned.shape
    best, second = proportioned.float().softmax(dim=1).topk(2, dim=1).values.unbind(dim=1)
    surest = (best - second).topk(max(1, int(SUREST * count))).indices
    return reach(proportioned[surest]) >= max(REACH_OF_SURE, REACH_OF_FEW / classes)


def reach(logits: Tensor) -> float:
    """How much the less used half of the classes is used, 1 for as much as the others; by answers (N C)."""
    count, classes = logits.shape
    used = logits.argmax(dim=1).bincount(minlength=classes).float().sort().values
    return float(used[: max(1, classes // 2)].mean()) * classes / count


def _in_use(logits: Tensor) -> float:
    return math.exp(float(marginal_entropy(logits)))
