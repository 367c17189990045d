"""What a model says of some images: a row of probabilities for each. Knows nothing of how they came about."""

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
                f"and {len(self.classes)} classes. Pass one row an image and one column a class."
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The likeliest class of each image."""
        return tuple(self.classes[index] for index in self.probs.argmax(dim=1).tolist())

    def top(self, k: int = 3) -> list[list[Guess]]:
        """The `k` likeliest classes of each image, likeliest first."""
        best = self.probs.topk(min(k, len(self.classes)), dim=1)
        return [
            [Guess(self.classes[index], prob) for index, prob in zip(indices, probs, strict=True)]
            for indices, probs in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def accuracy(self, labels: Tensor) -> float:
        """Share of images whose likeliest class is `labels` (N)."""
        return float((self.probs.argmax(dim=1) == labels).float().mean())

    def as_rows(self, k: int = 3) -> list[dict[str, object]]:
        """Plain rows for JSON: image, label, prob, and the `k` likeliest classes."""
        return [
            {
                "image": name,
                "label": guesses[0].label,
                "prob": guesses[0].prob,
                "top": [g._asdict() for g in guesses],
            }
            for name, guesses in zip(self.names, self.top(k), strict=True)
        ]

    def __len__(self) -> int:
        return len(self.names)

    def as_text(self, k: int = 3) -> str:
        """A line an image: `cat.jpg  cat 90%, dog 10%`."""
        width = max((len(name) for name in self.names), default=0)
        lines = (
            f"{name:<{width}}  " + ", ".join(f"{guess.label} {guess.prob:.0%}" for guess in guesses)
            for name, guesses in zip(self.names, self.top(k), strict=True)
        )
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return f"Predictions({len(self.names)} images × {len(self.classes)} classes)"


def predictions_from_logits(names: tuple[str, ...], classes: tuple[str, ...], logits: Tensor) -> Predictions:
    """Predictions whose probabilities are the softmax of `logits` (N C)."""
    return Predictions(names, classes, torch.softmax(logits.float(), dim=1).cpu())


def join_predictions(several: Sequence[Predictions]) -> Predictions:
    """Predictions of the same classes, made one after the other, as one."""
    names = tuple(name for one in several for name in one.names)
    return Predictions(names, several[0].classes, torch.cat([one.probs for one in several]))


@dataclass(frozen=True)
class Comparison:
    """The same images by zero-shot and by an adapted model."""

    zero_shot: Predictions
    adapted: Predictions

    @property
    def changed(self) -> tuple[int, ...]:
        """The images that the two name differently."""
        pairs = zip(self.zero_shot.labels, self.adapted.labels, strict=True)
        return tuple(index for index, (before, after) in enumerate(pairs) if before != after)

    def fixed(self, truth: Sequence[str | None]) -> tuple[int, ...]:
        """Images that adapting got right, of those whose class is known."""
        return tuple(i for i in self.changed if truth[i] is not None and truth[i] == self.adapted.labels[i])

    def broken(self, truth: Sequence[str | None]) -> tuple[int, ...]:
        """Images that only zero-shot had right, of those whose class is known."""
        return tuple(i for i in self.changed if truth[i] is not None and truth[i] == self.zero_shot.labels[i])

    def __len__(self) -> int:
        return len(self.adapted)
