"""What a handful of labelled images tells about accuracy: each is held out in turn. Knows nothing of towers.

    fold = held_out(evidence, folds=4)                       # (N): the part each image is held out in
    labels = labellings(evidence.labels, fold)               # (R + 1, N): a run for each part, then all
    verdict = decide({ZERO_SHOT: …, "lpp": …}, evidence.labels, fold)    # logits by runs that saw none of it

An image that is the only one of its class is never held out: nothing would be left to know its class by.
There are no more parts than a middling class has images, so that most classes lose one whenever any does: a
class that alone lost half of its two images would look weaker than it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from atlas_engine.heads.base import UNUSED, LabelledFeatures
from atlas_engine.heads.cross_validation import assign_folds, wilson_interval
from atlas_engine.result import Estimate, Verdict

__all__ = ["ZERO_SHOT", "decide_verdict", "estimate_accuracies", "held_out_folds", "labels_per_fold"]

ZERO_SHOT = "zero-shot"
CHANCE = 1  # images that a lead must be above


def held_out_folds(evidence: LabelledFeatures, *, folds: int, seed: int = 0) -> Tensor:
    """(N): the part that each image is held out in, 0 … R − 1, or UNUSED for one that never is."""
    counts = evidence.counts
    several = counts[counts >= 2]
    parts_at_most = max(2, int(several.median())) if len(several) else 2
    alone = counts[evidence.labels.clamp_min(0)] < 2
    fold = assign_folds(evidence, folds=min(folds, parts_at_most), seed=seed).masked_fill(alone, UNUSED)
    found, dense = torch.unique(fold, return_inverse=True)
    parts: Tensor = dense - int(found[0] == UNUSED)
    return parts


def labels_per_fold(labels: Tensor, fold: Tensor) -> Tensor:
    """(R + 1, N): the labels without each part in turn, and last all of them."""
    parts = torch.arange(int(fold.max()) + 1, device=labels.device).unsqueeze(1)
    return torch.cat([labels.expand(len(parts), -1).masked_fill(fold == parts, UNUSED), labels[None]])


def estimate_accuracies(answers: Mapping[str, Tensor], labels: Tensor, fold: Tensor) -> tuple[Estimate, ...]:
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
        found.append(Estimate(method, right / count, *wilson_interval(right, count), count))
    return tuple(found)


def decide_verdict(answers: Mapping[str, Tensor], labels: Tensor, fold: Tensor) -> Verdict:
    """The method to keep, by the images that were held out.

    Of those that learned, the most wanted, unless another gets more right by more than a single image, which
    is chance. It stays unless zero-shot gets more right, or all. A tie goes to what was learned, for it was
    held out from images that the kept one has seen; a lead of a single image is not called help. `answers`
    has zero-shot first and the most wanted last.
    """
    rows = fold != UNUSED
    if not bool(rows.any()):
        return _unheard(answers, labels)
    right = {method: int(_right(logits, labels)[rows].sum()) for method, logits in answers.items()}
    *_, wanted = answers
    best = max((method for method in answers if method != ZERO_SHOT), key=right.__getitem__)
    learned = best if right[best] > right[wanted] + CHANCE else wanted
    count, before, after = int(rows.sum()), right[ZERO_SHOT], right[learned]
    held = f"of {count} images held out"
    if after < before or before == count:
        return Verdict(
            ZERO_SHOT,
            helped=False,
            sentence=f"No clear gain, so zero-shot was kept: {held} it got {before} right, and what was "
            f"learned {after}.",
        )
    if after <= before + CHANCE:
        more = f"got {after} right, zero-shot {before}, and one image may be chance"
        told = f"and zero-shot got {after} right each" if after == before else more
        return Verdict(
            learned,
            helped=None,
            sentence=f"No clear difference: {held}, adapted {told}. The adapted model was kept, for it has "
            "learned from those as well by now.",
        )
    return Verdict(
        learned,
        helped=True,
        sentence=f"Adapting helped: {held} it got {after} right, zero-shot {before}.",
    )


def _unheard(answers: Mapping[str, Tensor], labels: Tensor) -> Verdict:
    right, count = int(_right(answers[ZERO_SHOT], labels).sum()), len(labels)
    known = f"With one image a class nothing can be held out. Zero-shot names {right} of the {count} right"
    if right == count:
        return Verdict(ZERO_SHOT, helped=False, sentence=f"{known}, so it was kept. Add a second image each.")
    return Verdict(
        list(answers)[-1],
        helped=None,
        sentence=f"{known}, so adapting is likely to help, but how much is not known. Add a second image "
        "each to find out.",
    )


def _right(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.argmax(dim=1) == labels
