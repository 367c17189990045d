"""What a handful of labelled images tells about accuracy: each is held out in turn. Knows nothing of towers.

    fold = held_out(evidence, folds=4)                       # (N): the part each image is held out in
    labels = labellings(evidence.labels, fold)               # (R + 1, N): a run for each part, then all
    verdict = decide({ZERO_SHOT: …, "lpp": …}, evidence.labels, fold)    # logits by runs that saw none of it

An image that is the only one of its class is never held out: nothing would be left to know its class by.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.heads.base import UNUSED, Evidence
from atlas_engine.heads.estimate import deal
from atlas_engine.result import Estimate, Verdict
from atlas_engine.shares import wilson

__all__ = ["ENOUGH", "ZERO_SHOT", "decide", "estimates_of", "held_out", "labellings"]

ZERO_SHOT = "zero-shot"
ENOUGH = 0.9
"""With one image a class there is nothing to hold out. Zero-shot stays where it gets this share right: then
one image has little to teach."""


def held_out(evidence: Evidence, *, folds: int, seed: int = 0) -> Tensor:
    """(N): the part that each image is held out in, 0 … R − 1, or UNUSED for one that never is."""
    alone = evidence.counts[evidence.labels.clamp_min(0)] < 2
    fold = deal(evidence, folds=folds, seed=seed).masked_fill(alone, UNUSED)
    found, dense = torch.unique(fold, return_inverse=True)
    parts: Tensor = dense - int(found[0] == UNUSED)
    return parts


def labellings(labels: Tensor, fold: Tensor) -> Tensor:
    """(R + 1, N): the labels without each part in turn, and last all of them."""
    parts = torch.arange(int(fold.max()) + 1, device=labels.device).unsqueeze(1)
    return torch.cat([labels.expand(len(parts), -1).masked_fill(fold == parts, UNUSED), labels[None]])


def estimates_of(answers: Mapping[str, Tensor], labels: Tensor, fold: Tensor) -> tuple[Estimate, ...]:
    """How many of the images that were held out each method gets right, by its logits (N C) for them.

    Zero-shot never saw a label, so it is measured on all of them where none can be held out.
    """
    found = []
    for method, logits in answers.items():
        rows = fold != UNUSED
        if not bool(rows.any()):
            if method != ZERO_SHOT:
                continue
            rows = torch.ones_like(rows)
        right, count = int(_right(logits, labels)[rows].sum()), int(rows.sum())
        found.append(Estimate(method, right / count, *wilson(right, count), count))
    return tuple(found)


def decide(answers: Mapping[str, Tensor], labels: Tensor, fold: Tensor) -> Verdict:
    """The method to keep, by the images that were held out.

    Of those that learned, the one with the lowest cross-entropy: it tells more than a count of few images. It
    stays if it gets more right than zero-shot, or as many with a lower cross-entropy. `answers` has zero-shot
    first and the most wanted method last.
    """
    rows = fold != UNUSED
    if not bool(rows.any()):
        return _unheard(answers, labels)
    marks = {method: _mark(logits[rows], labels[rows]) for method, logits in answers.items()}
    learned = max((method for method in marks if method != ZERO_SHOT), key=lambda method: marks[method][1])
    kept = learned if marks[learned] > marks[ZERO_SHOT] else ZERO_SHOT
    count, before, after = int(rows.sum()), int(marks[ZERO_SHOT][0]), int(marks[kept][0])
    if kept == ZERO_SHOT:
        return Verdict(
            kept,
            helped=False,
            sentence=f"No clear difference, so zero-shot was kept: of {count} images held out it got "
            f"{before} right, and nothing that was learned did better.",
        )
    clearer = "" if after > before else ", and its answers were the better weighed"
    return Verdict(
        kept,
        helped=True,
        sentence=f"Adapting helped: of {count} images held out it got {after} right, zero-shot "
        f"{before}{clearer}.",
    )


def _unheard(answers: Mapping[str, Tensor], labels: Tensor) -> Verdict:
    right, count = int(_right(answers[ZERO_SHOT], labels).sum()), len(labels)
    known = f"With one image a class nothing can be held out. Zero-shot names {right} of the {count} right"
    if right >= ENOUGH * count:
        return Verdict(ZERO_SHOT, helped=False, sentence=f"{known}, so it was kept. Add a second image each.")
    return Verdict(
        list(answers)[-1],
        helped=None,
        sentence=f"{known}, so adapting is likely to help, but how much is not known. Add a second image "
        "each to find out.",
    )


def _mark(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    return float(_right(logits, labels).sum()), -float(F.cross_entropy(logits, labels))


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.argmax(dim=1) == labels
