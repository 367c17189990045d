"""Losses of task arithmetic: learn several tasks at once, or forget one and keep another.

All tasks share one head, with the classes of the first task first. The loss of an image is taken over the
classes of its own task alone; its label says which task that is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from atlas_engine.entropies import entropies
from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch, LogitsFn, weighted_mean

__all__ = ["Forgetting", "TaskCrossEntropy", "TaskEntropy", "mask_other_tasks"]

MASKED_LOGIT = -1e4
"""The logit of a class of another task: no probability, and still a number, so that 0 · log 0 is 0."""


@dataclass(frozen=True)
class TaskCrossEntropy:
    """Cross-entropy of each image among its own task's classes, averaged over the batch by its weights.

    ``sizes`` says how many classes each task has. Weights that add up to the same for every task make it the
    mean of the tasks' losses (aTLAS, arXiv 2407.02880, section 4: addition).
    """

    sizes: tuple[int, ...]

    additive: ClassVar[bool] = True

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Float[Tensor, ""]:
        """The loss of the batch."""
        return weighted_mean(_cross_entropies(logits_fn, batch, self.sizes), batch.weights)


@dataclass(frozen=True)
class Forgetting:
    """−CE of the first task's images + CE of the second's (aTLAS, section 4: negation), by their weights.

    An image whose class has a probability below 1/C is never classified right. So the cross-entropy of a
    forgotten image is clamped at ``enough`` · ln C, and images that are forgotten already do not outweigh
    those that are not. The paper's own loss, which is unbounded, is ``enough=math.inf``.
    """

    sizes: tuple[int, int]
    enough: float = 1.5

    additive: ClassVar[bool] = True

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Float[Tensor, ""]:
        """The loss of the batch."""
        losses = _cross_entropies(logits_fn, batch, self.sizes)
        to_forget = _require_labels(batch) < self.sizes[0]
        ceiling = self.enough * math.log(self.sizes[0])
        return weighted_mean(torch.where(to_forget, -losses.clamp(max=ceiling), losses), batch.weights)


@dataclass(frozen=True)
class TaskEntropy:
    """Entropy of each answer among the task's own classes; of a label only its task is used.

    AdaMerging (ICLR 2024) minimises it to mix task vectors without labels.
    """

    sizes: tuple[int, ...]

    additive: ClassVar[bool] = True

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Float[Tensor, ""]:
        """The loss of the batch."""
        logits = mask_other_tasks(logits_fn(batch.images), _require_labels(batch), self.sizes)
        return weighted_mean(entropies(logits), batch.weights)


def mask_other_tasks(
    logits: Float[Tensor, "B C"], labels: Int[Tensor, " B"], sizes: tuple[int, ...]
) -> Float[Tensor, "B C"]:
    """The logits in float32, with the classes of other tasks than the label's masked; C counts all tasks'.

    >>> mask_other_tasks(torch.tensor([[1.0, 2.0, 9.0, 9.0]]), torch.tensor([0]), (2, 2)).argmax().item()
    1
    """
    counts = torch.tensor(sizes, device=logits.device)
    task = torch.arange(len(sizes), device=logits.device).repeat_interleave(counts)  # (C)
    return logits.float().masked_fill(task[labels].unsqueeze(1) != task, MASKED_LOGIT)


def _cross_entropies(logits_fn: LogitsFn, batch: Batch, sizes: tuple[int, ...]) -> Float[Tensor, " B"]:
    labels = _require_labels(batch)
    logits = mask_other_tasks(logits_fn(batch.images), labels, sizes)
    return cross_entropy(logits, labels, reduction="none")


def _require_labels(batch: Batch) -> Int[Tensor, " B"]:
    if batch.labels is None:
        raise ConfigError(f"{batch!r} does not say which task each image is of. Give it labels.")
    return batch.labels
