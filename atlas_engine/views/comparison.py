"""Zero-shot and adapted predictions side by side: what changed, what is confused, how sure one may be. Pure.

    confusion_grid(truth, predictions)             # a Grid to draw: true classes × predicted ones, in images
    changes(comparison, truth)                     # the images that the two name differently, the fixed first
    calibration(truth, predictions).error          # how far probabilities are from the share that is right

The truth is one class name an image, or None where it is not known; those images do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.predictions import Comparison, Guess, Predictions
from atlas_engine.views.heatmap import Grid

__all__ = ["Bin", "Calibration", "Change", "Truth", "calibration", "changes", "confusion_grid"]

Truth = Sequence[str | None]

FIXED, BROKEN, OTHER = "fixed", "broken", "changed"
BINS = 10


@dataclass(frozen=True)
class Change:
    """An image whose class the two name differently: fixed, broken, or changed where neither can be said."""

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
    """Images whose likeliest class has a probability in one range: what they promise, and what holds."""

    low: float
    high: float
    images: int
    confidence: float  # mean probability of the likeliest class
    accuracy: float  # share of these images that are right


@dataclass(frozen=True)
class Calibration:
    """The expected calibration error, and the bins that it comes from; empty ones are left out."""

    error: float
    images: int
    bins: tuple[Bin, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON types."""
        return asdict(self)


def confusion_grid(truth: Truth, predictions: Predictions) -> Grid:
    """Images of each true class (rows) that get each class (columns); no numbers for a class without any."""
    pairs = Counter((right, said) for right, said, _ in _known(truth, predictions))
    seen = {right for right, _ in pairs}
    values = tuple(
        tuple(float(pairs[right, said]) if right in seen else None for said in predictions.classes)
        for right in predictions.classes
    )
    wrong = sum(count for (right, said), count in pairs.items() if right != said)
    return Grid(
        "Which classes are taken for which",
        predictions.classes,
        predictions.classes,
        values,
        number=".0f",
        about=f"Rows are the true classes, columns what is said. {wrong} of {pairs.total()} are wrong.",
    )


def changes(comparison: Comparison, truth: Truth | None = None) -> tuple[Change, ...]:
    """The images that adapting gave another class: first the fixed, then the broken, then the rest."""
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


def calibration(truth: Truth, predictions: Predictions, *, bins: int = BINS) -> Calibration:
    """Expected calibration error over equal ranges of probability (Guo et al., arXiv 1706.04599, eq. 3).

    error = Σ_b n_b / N · |accuracy_b − confidence_b|. With few images it comes out too large: ten images that
    promise 95 % can be right 90 % or 100 % of the time, and never 95 %.
    """
    if bins < 1:
        raise ConfigError(f"bins={bins} is out of range. It must be 1 or more.")
    by_bin: dict[int, list[tuple[float, bool]]] = {}
    for right, said, prob in _known(truth, predictions):
        by_bin.setdefault(min(int(prob * bins), bins - 1), []).append((prob, right == said))
    made = tuple(_bin(place / bins, (place + 1) / bins, by_bin[place]) for place in sorted(by_bin))
    count = sum(one.images for one in made)
    error = sum(one.images * abs(one.accuracy - one.confidence) for one in made) / count
    return Calibration(error, count, made)


def _bin(low: float, high: float, members: Sequence[tuple[float, bool]]) -> Bin:
    count = len(members)
    confidence, right = sum(prob for prob, _ in members), sum(is_right for _, is_right in members)
    return Bin(low, high, count, confidence / count, right / count)


def _known(truth: Truth, predictions: Predictions) -> list[tuple[str, str, float]]:
    """True class, predicted class and its probability for the images whose class is known."""
    _check_length(truth, predictions)
    foreign = next((name for name in truth if name not in (None, *predictions.classes)), None)
    if foreign is not None:
        raise ConfigError(unknown_name("class", foreign, predictions.classes))
    answers = [guesses[0] for guesses in predictions.top(1)]
    known = [
        (right, said, prob) for right, (said, prob) in zip(truth, answers, strict=True) if right is not None
    ]
    if not known:
        raise ConfigError("of no image the true class is known. Give the class of one image at least.")
    return known


def _check_length(truth: Truth, predictions: Predictions) -> None:
    if len(truth) != len(predictions):
        raise ConfigError(
            f"there are {len(truth)} true classes for {len(predictions)} images. Pass one an image, "
            "and None where it is not known."
        )
