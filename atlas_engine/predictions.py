"""Predictions: class probabilities for some images, and two such sets compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

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

    def as_rows(self, k: int = 3) -> list[dict[str, object]]:
        """One row per image for JSON: image, label, prob, and the `k` likeliest classes."""
        return [
            {
                "image": name,
                "label": guesses[0].label,
                "prob": guesses[0].prob,
                "top": [g._asdict() for g in guesses],
            }
            for name, guesses in zip(self.names, self.top(k), strict=True)
        ]

    def as_text(self, k: int = 3) -> str:
        """One line per image: `cat.jpg  cat 90%, dog 10%`."""
        width = max((len(name) for name in self.names), default=0)
        lines = (
            f"{name:<{width}}  " + ", ".join(f"{guess.label} {guess.prob:.0%}" for guess in guesses)
            for name, guesses in zip(self.names, self.top(k), strict=True)
        )
        return "\n".join(lines)

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return f"Predictions({len(self.names)} images × {len(self.classes)} classes)"


def predictions_from_logits(names: tuple[str, ...], classes: tuple[str, ...], logits: Tensor) -> Predictions:
    """Predictions whose probabilities are the softmax of `logits` (N C)."""
    return Predictions(names, classes, torch.softmax(logits.float(), dim=1).cpu())


def join_predictions(several: Sequence[Predictions]) -> Predictions:
    """One Predictions of all the images of `several`, which have the same classes."""
    names = tuple(name for one in several for name in one.names)
    return Predictions(names, several[0].classes, torch.cat([one.probs for one in several]))


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

    def __len__(self) -> int:
        return len(self.adapted)
