"""Was adapting worth it? Folds of labelled images, accuracies on the held-out ones, and the verdict.

    folds = held_out_folds(images, folds=4)                  # (N): the fold of each image, 0 … 3
    labels = labels_per_fold(images.labels, folds)           # (R N): a row per fold, and one with all labels
    logits = {ZERO_SHOT: …, "lpp": out_of_fold_logits(folds, …)}
    verdict = decide_verdict(logits, images.labels, folds)

The only image of a class is never held out, because without it nothing shows the class. There are no more
folds than the median class has images, so that most classes have an image in every fold: a class that lost
one of its two images while the others lost none would be underrated.

With one image a class nothing can be held out. The head's pull to the class names grows as 1/N there, and new
views of the images tell whether answers hold. A stronger pull of λ for fewer images was tried on the bank's
data sets too, and gained nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from atlas_engine.adapt.methods import ZERO_SHOT
from atlas_engine.calibration import Calibration, calibrate
from atlas_engine.class_names import NONE_OF_THESE
from atlas_engine.heads.base import UNUSED, LabelledFeatures
from atlas_engine.heads.cross_validation import assign_folds, wilson_interval
from atlas_engine.result import Estimate, Verdict

__all__ = [
    "PROTOTYPES",
    "calibrate_held_out",
    "decide_verdict",
    "estimate_accuracies",
    "held_out_folds",
    "labels_per_fold",
    "out_of_fold_logits",
    "view_agreement",
]

CHANCE = 1  # a lead of so many images may be chance
ENOUGH_RIGHT = 6
"""With one image a class, so many images that zero-shot gets right, and none wrong, show that it is good. Of
two they do not: on the bank's data sets zero-shot had both right and was behind what was learned."""
AGREEMENT_FALL = 0.05  # with one image a class, what was learned is dropped where views agree less by more
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
    agreements: Mapping[str, float] | None = None,
) -> Verdict:
    """The method to keep, by held-out images. `logits` has zero-shot first and the preferred method last.

    Sentences name the model before adaptation as `start`: zero-shot, or PROTOTYPES. Where nothing can be held
    out, the methods are compared by their `agreements` (`view_agreement`) instead.

    1. Of the learned methods, take the preferred one, unless another is right on at least two images more:
       a lead of one image may be chance.
    2. Keep it, unless zero-shot is right on more images, or on all of them. A tie goes to the learned method,
       because it was measured without images that the kept model has seen.
    3. Say that it helped where it leads zero-shot by at least two images.
    """
    rows = folds != UNUSED
    if not bool(rows.any()):
        return _verdict_without_folds(logits, labels, start=start, agreements=agreements or {})
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


def calibrate_held_out(
    logits: Float[Tensor, "N C"],
    labels: Int[Tensor, " N"],
    folds: Int[Tensor, " N"],
    *,
    method: str,
    classes: Sequence[str],
) -> Calibration | None:
    """The calibration of a method by its logits of held-out images; None where none was held out.

    Zero-shot keeps its probabilities, and only gets a threshold. With a class of negatives the threshold is
    still that of known images, but a known image can also be taken for a negative: `kept_share` is then the
    share of held-out known images that passed both, as N + 1 images can promise it.
    """
    none = classes.index(NONE_OF_THESE) if NONE_OF_THESE in classes else UNUSED
    rows = (folds != UNUSED) & (labels != none)
    if not bool(rows.any()):
        return None
    found = calibrate(logits[rows], labels[rows], temperature=1.0 if method == ZERO_SHOT else None)
    if none == UNUSED:
        return found
    passed = ~found.rejects(logits[rows]) & (logits[rows].argmax(dim=1) != none)
    return replace(found, kept_share=int(passed.sum()) / (len(passed) + 1))


def view_agreement(clean: Float[Tensor, "N C"], views: Sequence[Float[Tensor, "N C"]]) -> float:
    """The share of random views that get the same class as the image they are of, from the logits of both."""
    same = [(logits.argmax(dim=1) == clean.argmax(dim=1)).float().mean() for logits in views]
    return float(torch.stack(same).mean())


def _verdict_without_folds(
    logits: Mapping[str, Tensor], labels: Tensor, *, start: str, agreements: Mapping[str, float]
) -> Verdict:
    """The verdict where every class has one image, so that none can be held out.

    1. Zero-shot is kept where it gets all images right, and these are enough to tell.
    2. Of what was learned, the last is kept whose answers for new views agree with those for the images as
       often as before: a model that learned the images and nothing of their classes changes its answers.
    """
    held_out, advice = "With one image per class nothing can be held out", "Add a second image to each class"
    right, count = int(_is_right(logits[ZERO_SHOT], labels).sum()), len(labels)
    name = f"{start[0].upper()}{start[1:]}"
    if start != PROTOTYPES and right == count >= ENOUGH_RIGHT:
        sentence = f"{held_out}. {name} gets {right} of the {count} right, so it was kept. {advice}."
        return Verdict(ZERO_SHOT, helped=False, sentence=sentence)
    kept = _last_that_agrees(list(logits), agreements)
    if kept == ZERO_SHOT:
        before, after = agreements[ZERO_SHOT], max(agreements[name] for name in logits if name != ZERO_SHOT)
        sentence = (
            f"{held_out}. Two views of an image got the same answer less often after adapting ({after:.0%}, "
            f"and {before:.0%} before), so {start} was kept. {advice}."
        )
        return Verdict(ZERO_SHOT, helped=False, sentence=sentence)
    if start == PROTOTYPES:
        known = "so whether adapting helps is not known"
        return Verdict(kept, helped=None, sentence=f"{held_out}, {known}. {advice} to find out.")
    likely = (
        "so adapting is likely to help, but how much is not known"
        if right < count
        else "but those are too few to tell, so the adapted model was kept"
    )
    sentence = f"{held_out}. {name} gets {right} of the {count} right, {likely}. {advice} to find out."
    return Verdict(kept, helped=None, sentence=sentence)


def _last_that_agrees(methods: Sequence[str], agreements: Mapping[str, float]) -> str:
    """The last method whose agreement is not below that of any earlier one by more than AGREEMENT_FALL.

    >>> _last_that_agrees(["zero-shot", "head", "both"], {"zero-shot": 0.8, "head": 0.9, "both": 0.7})
    'head'
    """
    if not agreements:
        return methods[-1]
    for place in reversed(range(1, len(methods))):
        earlier = max(agreements[name] for name in methods[:place])
        if agreements[methods[place]] >= earlier - AGREEMENT_FALL:
            return methods[place]
    return methods[0]


def _is_right(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Bool[Tensor, " N"]:
    return logits.argmax(dim=1) == labels
