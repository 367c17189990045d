"""Was adapting worth it? Folds of labelled images, accuracies on the held-out ones, and the verdict.

    folds = held_out_folds(images, folds=4)                  # (N): the fold of each image, 0 … 3
    labels = labels_per_fold(images.labels, folds)           # (R N): a row per fold, and one with all labels
    logits = {ZERO_SHOT: …, "lpp": out_of_fold_logits(folds, …)}
    verdict = decide_verdict(logits, images.labels, folds)

The only image of a class is never held out, because without it nothing shows the class. There are no more
folds than the median class has images, so that most classes have an image in every fold: a class that lost
one of its two images while the others lost none would be underrated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from atlas_engine.adapt.methods import ZERO_SHOT
from atlas_engine.heads.base import UNUSED, LabelledFeatures
from atlas_engine.heads.cross_validation import assign_folds, wilson_interval
from atlas_engine.result import Estimate, Verdict

__all__ = [
    "PROTOTYPES",
    "decide_verdict",
    "estimate_accuracies",
    "held_out_folds",
    "labels_per_fold",
    "out_of_fold_logits",
]

CHANCE = 1  # a lead of so many images may be chance
PROTOTYPES = "the head of prototypes"
"""What a model without a text tower starts from, as verdicts name it where others name zero-shot."""


def held_out_folds(
    images: LabelledFeatures, *, folds: int, seed: int = 0, every_class: bool = False
) -> Int[Tensor, " N"]:
    """The fold in which each image is held out, from 0, or UNUSED for an image that never is.

    With `every_class`, each training sees every class: a class whose images share one fold is not held out.
    """
    # no more folds than the median class has images, and no fold for the only image of a class
    counts = images.counts
    several = counts[counts >= 2]
    most = max(2, int(several.median())) if len(several) else 2
    alone = counts[images.labels.clamp_min(0)] < 2
    assigned = assign_folds(images, folds=min(folds, most), seed=seed).masked_fill(alone, UNUSED)
    if every_class:
        same_class = images.labels[:, None] == images.labels[None]
        apart = assigned[:, None] != assigned[None]
        assigned = assigned.masked_fill(~(same_class & apart).any(dim=1), UNUSED)
    # number the folds that are left without gaps; UNUSED stays −1
    found, dense = torch.unique(assigned, return_inverse=True)
    numbered: Tensor = dense - int(found[0] == UNUSED)
    return numbered


def labels_per_fold(labels: Int[Tensor, " N"], folds: Int[Tensor, " N"]) -> Int[Tensor, "R N"]:
    """Labels of each training: a row per fold in which that fold is UNUSED, then a row with all labels."""
    numbers = torch.arange(int(folds.max()) + 1, device=labels.device).unsqueeze(1)
    return torch.cat([labels.expand(len(numbers), -1).masked_fill(folds == numbers, UNUSED), labels[None]])


def out_of_fold_logits(
    folds: Int[Tensor, " N"], logits_of: Callable[[int, Bool[Tensor, " N"]], Tensor]
) -> Float[Tensor, "N C"]:
    """Logits of each image from the training that did not see it.

    `logits_of(run, mask)` gives the logits of the masked images from one training. An image that is never
    held out gets its logits from the last training, which saw all images.
    """
    count = int(folds.max()) + 1
    masks = [folds == run for run in range(count)] + [folds == UNUSED]
    parts = [(mask, logits_of(run, mask)) for run, mask in enumerate(masks) if bool(mask.any())]
    logits = parts[0][1].new_zeros(len(folds), parts[0][1].shape[1])
    for mask, part in parts:
        logits[mask] = part
    return logits


def estimate_accuracies(
    logits: Mapping[str, Tensor],
    labels: Int[Tensor, " N"],
    folds: Int[Tensor, " N"],
    *,
    start: str = ZERO_SHOT,
) -> tuple[Estimate, ...]:
    """The accuracy of each method on the held-out images, from its logits (N C).

    Where no image can be held out, zero-shot alone is measured, on all images: it never saw a label. A model
    that starts from PROTOTYPES has seen the labels, so nothing is measured there.
    """
    estimates = []
    for method, method_logits in logits.items():
        rows = folds != UNUSED
        if not bool(rows.any()):
            if method != ZERO_SHOT or start == PROTOTYPES:
                continue
            rows = torch.ones_like(rows)
        right, count = int(_is_right(method_logits, labels)[rows].sum()), int(rows.sum())
        estimates.append(Estimate(method, right / count, *wilson_interval(right, count), count))
    return tuple(estimates)


def decide_verdict(
    logits: Mapping[str, Tensor],
    labels: Int[Tensor, " N"],
    folds: Int[Tensor, " N"],
    *,
    start: str = ZERO_SHOT,
) -> Verdict:
    """The method to keep, by held-out images. `logits` has zero-shot first and the preferred method last.

    Sentences name the model before adaptation as `start`: zero-shot, or PROTOTYPES.

    1. Of the learned methods, take the preferred one, unless another is right on at least two images more:
       a lead of one image may be chance.
    2. Keep it, unless zero-shot is right on more images, or on all of them. A tie goes to the learned method,
       because it was measured without images that the kept model has seen.
    3. Say that it helped where it leads zero-shot by at least two images.
    """
    rows = folds != UNUSED
    if not bool(rows.any()):
        return _verdict_without_folds(logits, labels, start=start)
    right = {
        method: int(_is_right(method_logits, labels)[rows].sum()) for method, method_logits in logits.items()
    }
    # the learned method: the preferred one, or a clearly better one
    *_, preferred = logits
    best = max((method for method in logits if method != ZERO_SHOT), key=right.__getitem__)
    learned = best if right[best] > right[preferred] + CHANCE else preferred
    # against zero-shot
    count, before, after = int(rows.sum()), right[ZERO_SHOT], right[learned]
    held_out = f"of {count} images held out"
    if after < before or before == count:
        return Verdict(
            ZERO_SHOT,
            helped=False,
            sentence=f"No clear gain, so {start} was kept: {held_out} it got {before} right, and what was "
            f"learned {after}.",
        )
    if after <= before + CHANCE:
        tie = f"and {start} got {after} right each"
        lead = f"got {after} right, {start} {before}, and one image may be chance"
        return Verdict(
            learned,
            helped=None,
            sentence=f"No clear difference: {held_out}, adapted {tie if after == before else lead}. The "
            "adapted model was kept, because it has also learned from the images held out.",
        )
    return Verdict(
        learned,
        helped=True,
        sentence=f"Adapting helped: {held_out} it got {after} right, {start} {before}.",
    )


def _verdict_without_folds(logits: Mapping[str, Tensor], labels: Tensor, *, start: str) -> Verdict:
    """The verdict where every class has one image, so that none can be held out."""
    if start == PROTOTYPES:
        return Verdict(
            list(logits)[-1],
            helped=None,
            sentence="With one image per class nothing can be held out, so whether adapting helps is not "
            "known. Add a second image to each class to find out.",
        )
    right, count = int(_is_right(logits[ZERO_SHOT], labels).sum()), len(labels)
    known = f"With one image per class nothing can be held out. Zero-shot gets {right} of the {count} right"
    if right == count:
        return Verdict(
            ZERO_SHOT, helped=False, sentence=f"{known}, so it was kept. Add a second image to each class."
        )
    return Verdict(
        list(logits)[-1],
        helped=None,
        sentence=f"{known}, so adapting is likely to help, but how much is not known. Add a second image to "
        "each class to find out.",
    )


def _is_right(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Bool[Tensor, " N"]:
    return logits.argmax(dim=1) == labels
