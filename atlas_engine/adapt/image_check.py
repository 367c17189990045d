"""Which of my images hurt: labels that look wrong, images that fit nowhere, and near-duplicates.

    check = engine.check(support)
    for suspect in check.suspects: print(suspect.image, suspect.label, "looks like", suspect.suggested)
    check.odd, check.duplicates, check.sentence

**A label looks wrong** where two heads that have not seen the image answer another class, and do so much more
clearly than for the other images: a probe fitted without the image's fold, and the ridge head without the
image (`heads.ridge`). Clarity is the margin of the best other class over the given one, counted in robust
deviations from the median image, so a hard data set does not make every image suspect.
**An image is odd** where its largest logit is small, of a head that has not seen it and of the class names,
by the same robust deviations.
**Near-duplicates** have similar features and similar thumbnails. In two classes one of them is wrong; in one
class they count twice, and make held-out accuracy too high.

What these rules find of planted mistakes is measured by `atlas eval trust`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.adapt.verdict import held_out_folds, labels_per_fold, out_of_fold_logits
from atlas_engine.heads.base import UNUSED, Head, LabelledFeatures, text_logits
from atlas_engine.heads.probe import Probe
from atlas_engine.heads.ridge import Ridge

__all__ = ["DuplicatePair", "ImageCheck", "OddImage", "SuspectLabel", "check_images"]

SUSPECT_DEVIATIONS = 3.0  # of both heads together, above which a label is suspect
ODD_DEVIATIONS = 4.0  # of both measures together, above which an image is odd
DUPLICATE_COSINE, DUPLICATE_THUMBNAIL = 0.7, 0.9  # from which two images are near-duplicates, both
THUMBNAIL = 12  # pixels per side
FOLDS = 4
MAD_TO_DEVIATION = 1.4826  # of a normal distribution
FEWEST = 6  # images from which deviations can be told
# all thresholds were chosen on data sets of the bank


@dataclass(frozen=True)
class SuspectLabel:
    """An image whose label looks wrong."""

    index: int  # in the support
    image: str
    label: str  # as given
    suggested: str
    prob: float  # of the suggested class, by a head that was fitted without the image
    deviations: float  # from the median image; the larger, the surer
    influence: float  # above 0: the other images are answered better without it


@dataclass(frozen=True)
class OddImage:
    """An image that is unlike every class."""

    index: int
    image: str
    label: str
    deviations: float


@dataclass(frozen=True)
class DuplicatePair:
    """Two images that look the same."""

    first: int
    second: int
    images: tuple[str, str]
    labels: tuple[str, str]
    cosine: float  # of their features

    @property
    def across_classes(self) -> bool:
        """Whether they are in two classes, so that one label is wrong."""
        return self.labels[0] != self.labels[1]


@dataclass(frozen=True)
class ImageCheck:
    """What looks wrong among labelled images, the surest first."""

    images: int
    classes: tuple[str, ...]
    suspects: tuple[SuspectLabel, ...]
    odd: tuple[OddImage, ...]
    duplicates: tuple[DuplicatePair, ...]

    @property
    def sentence(self) -> str:
        """What was found, in a sentence."""
        across = sum(pair.across_classes for pair in self.duplicates)
        found = [
            _count(len(self.suspects), "label that looks wrong", "labels that look wrong"),
            _count(len(self.odd), "image that fits nowhere", "images that fit nowhere"),
            _count(across, "near-duplicate pair in two classes", "near-duplicate pairs in two classes"),
            _count(
                len(self.duplicates) - across,
                "near-duplicate pair in one class",
                "near-duplicate pairs in one class",
            ),
        ]
        told = ", ".join(text for text in found if text)
        among = f"among {self.images} images of {len(self.classes)} classes"
        return f"{told[0].upper()}{told[1:]}, {among}." if told else f"Nothing looks wrong {among}."

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON types."""
        pairs = [{**asdict(pair), "across_classes": pair.across_classes} for pair in self.duplicates]
        return {**asdict(self), "duplicates": pairs, "sentence": self.sentence}


def check_images(
    images: LabelledFeatures,
    pixels: UInt8[Tensor, "N 3 S S"],
    *,
    names: Sequence[str],
    classes: Sequence[str],
    from_text: bool = True,
    seed: int = 0,
) -> ImageCheck:
    """What looks wrong among labelled images, given by their features, their pixels and their names.

    Without `from_text` the class embeddings are ignored, because they were made of the labels.
    """
    close = _near_duplicates(images.features, pixels)
    given = [classes[label] for label in images.labels.tolist()]
    cosines = images.features @ images.features.T
    pairs = [
        DuplicatePair(i, j, (names[i], names[j]), (given[i], given[j]), float(cosines[i, j]))
        for i, j in close.triu(diagonal=1).nonzero().tolist()
    ]
    duplicates = tuple(sorted(pairs, key=lambda pair: (not pair.across_classes, -pair.cosine)))
    copies = _groups(close)
    suspects, odd = _find_suspects(images, copies, from_text=from_text, seed=seed)
    return ImageCheck(
        len(images.labels),
        tuple(classes),
        tuple(
            SuspectLabel(i, names[i], given[i], classes[better], prob, deviations, influence)
            for i, better, prob, deviations, influence in suspects
        ),
        tuple(OddImage(i, names[i], given[i], deviations) for i, deviations in odd),
        duplicates,
    )


def _find_suspects(
    images: LabelledFeatures, copies: Int[Tensor, " N"], *, from_text: bool, seed: int
) -> tuple[list[tuple[int, int, float, float, float]], list[tuple[int, float]]]:
    """(index, better class, its probability, deviations, influence) of suspects; (index, deviations) of odd
    images."""
    labels, rows = images.labels, torch.arange(len(images.labels), device=images.labels.device)
    folds = held_out_folds(images, folds=FOLDS, seed=seed, every_class=True)
    known = folds != UNUSED  # the only image of a class cannot be held out
    if int(known.sum()) < FEWEST:
        return [], []
    # two heads that have not seen the image
    fit: Callable[[LabelledFeatures], Head] = Probe.fit_from_text if from_text else Probe.fit
    heads = [fit(images.with_labels(row)) for row in labels_per_fold(labels, folds)]
    logits = out_of_fold_logits(folds, lambda run, mask: heads[run].logits(images.features[mask]))
    log_probs = logits.log_softmax(dim=1)
    ridge = Ridge.fit(images, from_text=from_text)
    scores = ridge.held_out_scores(copies)
    # labels: both heads answer another class, clearly
    probe_margin, ridge_margin = _margin(log_probs, labels), _margin(scores, labels)
    deviations = _robust_deviations(probe_margin, known) + _robust_deviations(ridge_margin, known)
    wrong = known & (probe_margin > 0) & (ridge_margin > 0) & (deviations > SUSPECT_DEVIATIONS)
    better = (log_probs.exp() + scores).scatter(1, labels.unsqueeze(1), -torch.inf).argmax(dim=1)
    influences = ridge.influences()
    suspects = [
        (i, int(better[i]), float(log_probs[i, better[i]].exp()), float(deviations[i]), float(influences[i]))
        for i in rows[wrong].tolist()
    ]
    # odd images: no class has a large logit, neither as learned without the image nor by its name
    by_name = text_logits(images.features, images.text, logit_scale=images.logit_scale)
    largest = [logits.amax(dim=1), (by_name if from_text else logits).amax(dim=1)]
    oddness = torch.stack([_robust_deviations(-values, known) for values in largest]).sum(dim=0)
    odd = [(i, float(oddness[i])) for i in rows[known & (oddness > ODD_DEVIATIONS)].tolist()]
    return sorted(suspects, key=lambda row: -row[3]), sorted(odd, key=lambda row: -row[1])


def _margin(scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The best score of another class minus the score of the given one."""
    own = labels.unsqueeze(1)
    return scores.scatter(1, own, -torch.inf).amax(dim=1) - scores.gather(1, own).squeeze(1)


def _robust_deviations(values: Float[Tensor, " N"], known: Tensor) -> Float[Tensor, " N"]:
    """How far each value is above the median, in units of the median absolute deviation of known images."""
    median = values[known].median()
    spread = MAD_TO_DEVIATION * (values[known] - median).abs().median()
    return (values - median) / spread.clamp_min(1e-6)


def _near_duplicates(features: Float[Tensor, "N D"], pixels: UInt8[Tensor, "N 3 S S"]) -> Bool[Tensor, "N N"]:
    """Which pairs of images have similar features and similar thumbnails; every image is like itself."""
    small = F.adaptive_avg_pool2d(pixels.float(), THUMBNAIL).flatten(1)
    thumbnails = F.normalize(small - small.mean(dim=1, keepdim=True), dim=1).to(features.device)
    alike = (features @ features.T >= DUPLICATE_COSINE) & (thumbnails @ thumbnails.T >= DUPLICATE_THUMBNAIL)
    return alike | torch.eye(len(features), dtype=torch.bool, device=features.device)


def _groups(close: Bool[Tensor, "N N"]) -> Int[Tensor, " N"]:
    """The group of each image, known by its first member: images that pairs connect."""
    group = torch.arange(len(close), device=close.device)
    while True:
        first = torch.where(close, group, len(close)).amin(dim=1)
        if torch.equal(first, group):
            return group
        group = first


def _count(number: int, one: str, several: str) -> str:
    return "" if not number else f"{number} {one if number == 1 else several}"
