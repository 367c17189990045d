"""Predictions: class probabilities for some images, and two such sets compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from atlas_engine.calibration import Calibration
from atlas_engine.class_names import NONE_OF_THESE
from atlas_engine.errors import ConfigError

__all__ = ["Comparison", "Guess", "Predictions", "join_predictions", "predictions_from_logits"]


class Guess(NamedTuple):
    """One class and its probability."""

    label: str
    prob: float


@dataclass(frozen=True)
class Predictions:
    """Probabilities (N C) on the CPU, with the images' and the classes' names.

    >>> Predictions(("cat.jpg",), ("cat", "dog"), torch.tensor([[0.9, 0.1]])).labels
    ('cat',)
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    probs: Tensor
    rejected: tuple[bool, ...] | None = None  # which images are none of the classes; None: nothing can tell

    def __post_init__(self) -> None:
        if tuple(self.probs.shape) != (len(self.names), len(self.classes)):
            raise ConfigError(
                f"probabilities have shape {tuple(self.probs.shape)}, but there are {len(self.names)} images "
                f"and {len(self.classes)} classes. Pass one row per image and one column per class."
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The likeliest class of each image."""
        return tuple(self.classes[index] for index in self.probs.argmax(dim=1).tolist())

    @property
    def answers(self) -> tuple[str, ...]:
        """The likeliest class of each image, or `none of these` where the image is rejected."""
        return tuple(
            NONE_OF_THESE if rejected else label
            for rejected, label in zip(self._rejected, self.labels, strict=True)
        )

    @property
    def _rejected(self) -> tuple[bool, ...]:
        return (False,) * len(self) if self.rejected is None else self.rejected

    def top(self, k: int = 3) -> list[list[Guess]]:
        """The `k` likeliest classes of each image, the likeliest first."""
        best = self.probs.topk(min(k, len(self.classes)), dim=1)
        return [
            [Guess(self.classes[index], prob) for index, prob in zip(indices, probs, strict=True)]
            for indices, probs in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def accuracy(self, labels: Tensor) -> float:
        """The share of images whose likeliest class is the one in `labels` (N)."""
        return float((self.probs.argmax(dim=1) == labels).float().mean())

    def select(self, indices: Sequence[int]) -> Predictions:
        """The predictions of the images at these positions, in this order."""
        rejected = None if self.rejected is None else tuple(self.rejected[i] for i in indices)
        names = tuple(self.names[i] for i in indices)
        return Predictions(names, self.classes, self.probs[list(indices)], rejected)

    def as_rows(self, k: int = 3) -> list[dict[str, object]]:
        """One row per image for JSON: image, label, prob, and the `k` likeliest classes.

        Where images can be rejected, a row also says whether this one is.
        """
        return [
            {
                "image": name,
                "label": guesses[0].label,
                "prob": guesses[0].prob,
                "top": [g._asdict() for g in guesses],
                **({"none_of_these": rejected} if self.rejected is not None else {}),
            }
            for name, guesses, rejected in zip(self.names, self.top(k), self._rejected, strict=True)
        ]

    def as_text(self, k: int = 3) -> str:
        """One line per image: `cat.jpg  cat 90%, dog 10%`; `sky.jpg  none of these (cat 50%)` if rejected."""
        width = max((len(name) for name in self.names), default=0)
        lines = (
            f"{name:<{width}}  {_guesses_as_text(guesses, rejected=rejected)}"
            for name, guesses, rejected in zip(self.names, self.top(k), self._rejected, strict=True)
        )
        return "\n".join(lines)

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return f"Predictions({len(self.names)} images × {len(self.classes)} classes)"


def predictions_from_logits(
    names: tuple[str, ...],
    classes: tuple[str, ...],
    logits: Tensor,
    *,
    calibration: Calibration | None = None,
) -> Predictions:
    """Predictions with probabilities softmax(logits / T), (N C); T is 1 without a calibration.

    An image is rejected where the calibration says so, or where its likeliest class is one of negatives.
    """
    used = calibration or Calibration()
    predictions = Predictions(names, classes, used.probs(logits).cpu())
    if used.reject_below is None and NONE_OF_THESE not in classes:
        return predictions
    pairs = zip(used.rejects(logits).tolist(), predictions.labels, strict=True)
    return replace(predictions, rejected=tuple(far or label == NONE_OF_THESE for far, label in pairs))


def _guesses_as_text(guesses: Sequence[Guess], *, rejected: bool) -> str:
    ranked = ", ".join(f"{guess.label} {guess.prob:.0%}" for guess in guesses)
    return f"{NONE_OF_THESE} ({ranked})" if rejected and guesses[0].label != NONE_OF_THESE else ranked


def join_predictions(several: Sequence[Predictions]) -> Predictions:
    """One Predictions of all the images of `several`, which have the same classes."""
    names = tuple(name for one in several for name in one.names)
    probs = torch.cat([one.probs for one in several])
    known = [one.rejected for one in several if one.rejected is not None]
    rejected = tuple(flag for flags in known for flag in flags) if len(known) == len(several) else None
    return Predictions(names, several[0].classes, probs, rejected)


@dataclass(frozen=True)
class Comparison:
    """Predictions for the same images by the zero-shot model and by an adapted one."""

    zero_shot: Predictions
    adapted: Predictions

    @property
    def changed(self) -> tuple[int, ...]:
        """Positions of the images whose likeliest class differs between the two."""
        pairs = zip(self.zero_shot.labels, self.adapted.labels, strict=True)
        return tuple(index for index, (before, after) in enumerate(pairs) if before != after)

    def fixed(self, truth: Sequence[str | None]) -> tuple[int, ...]:
        """Positions of the images that adapting got right, among those whose true class is not None."""
        return tuple(i for i in self.changed if truth[i] is not None and truth[i] == self.adapted.labels[i])

    def broken(self, truth: Sequence[str | None]) -> tuple[int, ...]:
        """Positions of the images that adapting got wrong and zero-shot right, among the same."""
        return tuple(i for i in self.changed if truth[i] is not None and truth[i] == self.zero_shot.labels[i])

    def select(self, indices: Sequence[int]) -> Comparison:
        """The images at these positions, in this order."""
        return Comparison(self.zero_shot.select(indices), self.adapted.select(indices))

    def join(self, other: Comparison) -> Comparison:
        """These images, then those of another comparison under the same classes."""
        return Comparison(
            join_predictions([self.zero_shot, other.zero_shot]),
            join_predictions([self.adapted, other.adapted]),
        )

    def __len__(self) -> int:
        return len(self.adapted)
