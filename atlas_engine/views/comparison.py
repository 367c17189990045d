"""Predictions against the truth, and zero-shot against adapted: what changed, is confused, is overconfident.

    confusion_grid(truth, predictions)             # a Grid to draw: images by true and predicted class
    changes(comparison, truth)                     # the images whose prediction changed, the fixed ones first
    calibration(truth, predictions).error          # expected calibration error

The truth is one class name per image, or None if it is not known; those images do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.predictions import Comparison, Guess, Predictions
from atlas_engine.views.heatmap import Grid

__all__ = ["Bin", "Change", "Reliability", "Truth", "calibration", "changes", "confusion_grid"]

Truth = Sequence[str | None]

FIXED, BROKEN, OTHER = "fixed", "broken", "changed"
BINS = 10


@dataclass(frozen=True)
class Change:
    """An image whose prediction changed: `what` is fixed, broken, or changed (neither, or not known)."""

    image: str
    what: str
    truth: str | None
    zero_shot: Guess
    adapted: Guess
    index: int  # of the image among those compared

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON types."""
        return {**asdict(self), "zero_shot": self.zero_shot._asdict(), "adapted": self.adapted._asdict()}


@dataclass(frozen=True)
class Bin:
    """The images whose likeliest class has a probability from `low` to `high`."""

    low: float
    high: float
    images: int
    confidence: float  # mean probability of the likeliest class
    accuracy: float  # share of these images that are right


@dataclass(frozen=True)
class Reliability:
    """The expected calibration error, and the bins behind it; empty ones are left out."""

    error: float
    images: int
    bins: tuple[Bin, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON types."""
        return asdict(self)


def confusion_grid(truth: Truth, predictions: Predictions) -> Grid:
    """The number of images by true class (rows) and prediction (columns); None in a row without images."""
    counts = Counter((true, predicted) for true, predicted, _ in _known(truth, predictions))
    present = {true for true, _ in counts}
    values = tuple(
        tuple(float(counts[true, column]) if true in present else None for column in predictions.classes)
        for true in predictions.classes
    )
    wrong = sum(count for (true, predicted), count in counts.items() if true != predicted)
    return Grid(
        "Which classes are taken for which",
        predictions.classes,
        predictions.classes,
        values,
        number=".0f",
        about=f"Rows are the true classes, columns what is said. {wrong} of {counts.total()} are wrong.",
    )


def changes(comparison: Comparison, truth: Truth | None = None) -> tuple[Change, ...]:
    """The images whose prediction changed by adapting: first the fixed, then the broken, then the rest."""
    known = [None] * len(comparison) if truth is None else truth
    _check_length(known, comparison.adapted)
    fixed, broken = comparison.fixed(known), comparison.broken(known)
    rest = [index for index in comparison.changed if index not in {*fixed, *broken}]
    before, after = (side.top(1) for side in (comparison.zero_shot, comparison.adapted))
    return tuple(
        Change(comparison.adapted.names[i], what, known[i], before[i][0], after[i][0], i)
        for what, indices in ((FIXED, fixed), (BROKEN, broken), (OTHER, rest))
        for i in indices
    )


def calibration(truth: Truth, predictions: Predictions, *, bins: int = BINS) -> Reliability:
    """Expected calibration error over equal ranges of probability (Guo et al., arXiv 1706.04599, eq. 3).

    error = Σ_b n_b / N · |accuracy_b − confidence_b|. It is too large for few images: ten images with
    confidence 95 % can have an accuracy of 90 % or 100 %, and never 95 %.
    """
    if bins < 1:
        raise ConfigError(f"bins={bins} is out of range. It must be 1 or more.")
    by_bin: dict[int, list[tuple[float, bool]]] = {}
    for true, predicted, prob in _known(truth, predictions):
        by_bin.setdefault(min(int(prob * bins), bins - 1), []).append((prob, true == predicted))
    filled = tuple(_bin(index / bins, (index + 1) / bins, by_bin[index]) for index in sorted(by_bin))
    count = sum(bin.images for bin in filled)
    error = sum(bin.images * abs(bin.accuracy - bin.confidence) for bin in filled) / count
    return Reliability(error, count, filled)


def _bin(low: float, high: float, members: Sequence[tuple[float, bool]]) -> Bin:
    count = len(members)
    confidence, correct = sum(prob for prob, _ in members), sum(is_correct for _, is_correct in members)
    return Bin(low, high, count, confidence / count, correct / count)


def _known(truth: Truth, predictions: Predictions) -> list[tuple[str, str, float]]:
    """(true class, predicted class, its probability) of each image whose true class is known."""
    _check_length(truth, predictions)
    foreign = next((name for name in truth if name not in (None, *predictions.classes)), None)
    if foreign is not None:
        raise ConfigError(unknown_name("class", foreign, predictions.classes))
    likeliest = [guesses[0] for guesses in predictions.top(1)]
    known = [
        (true, label, prob) for true, (label, prob) in zip(truth, likeliest, strict=True) if true is not None
    ]
    if not known:
        raise ConfigError("of no image the true class is known. Give the class of one image at least.")
    return known


def _check_length(truth: Truth, predictions: Predictions) -> None:
    if len(truth) != len(predictions):
        raise ConfigError(
            f"there are {len(truth)} true classes for {len(predictions)} images. Pass one per image, "
            "and None where it is not known."
        )
