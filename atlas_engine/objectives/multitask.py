"""Losses over several tasks at once: learn all of them, or unlearn one and keep another.

All tasks share one head, the classes of the first task first: an image is judged among the classes of its own
task alone, which its label tells. Knows nothing of where images come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from atlas_engine.entropies import entropies
from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["Forgetting", "TaskCrossEntropy", "TaskEntropy", "own_logits"]

FAR = -1e4
"""The logit of a class of another task: no probability, and still a number, so that 0 · log 0 is 0."""


@dataclass(frozen=True)
class TaskCrossEntropy:
    """Cross-entropy of each image among its own task's classes, averaged over the batch by its weights.

    ``sizes`` says how many classes each task has. Weights that add up to the same for every task make it the
    mean of the tasks' losses (aTLAS, arXiv 2407.02880, section 4: addition).
    """

    sizes: tuple[int, ...]

    additive: ClassVar[bool] = True

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Tensor:
        """The loss of the batch."""
        return weighted_mean(_losses(logits_fn, batch, self.sizes), batch.weights)


@dataclass(frozen=True)
class Forgetting:
    """−CE of the first task's images + CE of the second's (aTLAS, section 4: negation), by their weights.

    An image whose class has a probability below 1/C is not named right, whatever the others have. So beyond
    ``enough`` · ln C its cross-entropy earns nothing more, and what is left to forget is not drowned by what
    is long forgotten. The paper's own loss, which has no end, is ``enough=math.inf``.
    """

    sizes: tuple[int, int]
    enough: float = 1.5

    additive: ClassVar[bool] = True

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Tensor:
        """The loss of the batch."""
        losses = _losses(logits_fn, batch, self.sizes)
        unwanted = _labels(batch) < self.sizes[0]
        ceiling = self.enough * math.log(self.sizes[0])
        return weighted_mean(torch.where(unwanted, -losses.clamp(max=ceiling), losses), batch.weights)


@dataclass(frozen=True)
class TaskEntropy:
    """Entropy of each answer among the task's own classes; of a label, only the task is read.

    What AdaMerging (ICLR 2024) makes small to mix task vectors without labels.
    """

    sizes: tuple[int, ...]

    additive: ClassVar[bool] = True

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Tensor:
        """The loss of the batch."""
        logits = own_logits(logits_fn(batch.images), _labels(batch), self.sizes)
        return weighted_mean(entropies(logits), batch.weights)


def own_logits(logits: Tensor, labels: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """(B ΣC) in float32, with the classes of other tasks than the label's (B) out of reach.

    >>> own_logits(torch.tensor([[1.0, 2.0, 9.0, 9.0]]), torch.tensor([0]), (2, 2)).argmax().item()
    1
    """
    counts = torch.tensor(sizes, device=logits.device)
    task = torch.arange(len(sizes), device=logits.device).repeat_interleave(counts)  # (ΣC)
    return logits.float().masked_fill(task[labels].unsqueeze(1) != task, FAR)


def _losses(logits_fn: LogitsFn, batch: Batch, sizes: tuple[int, ...]) -> Tensor:
    labels = _labels(batch)
    return cross_entropy(own_logits(logits_fn(batch.images), labels, sizes), labels, reduction="none")  # (B)


def _labels(batch: Batch) -> Tensor:
    if batch.labels is None:
        raise ConfigError(f"{batch!r} does not say which task each image is of. Give it labels.")
    return batch.labels
