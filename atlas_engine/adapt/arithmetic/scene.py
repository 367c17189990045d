"""Who takes part in task arithmetic, and their pictures cut in two: to learn from, and to choose by.

    learned, held = deal(scene, share=0.35, seed=0)
    scene.sizes, scene.head                                  # all classes of all tasks under one head
    shares = [mark.share for mark in held.marks(logits)]     # a task each, among its own classes

Knows nothing of coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.clip.backbone import Backbone
from atlas_engine.data.split import near_duplicate_groups, split_groups
from atlas_engine.data.support import Support
from atlas_engine.heads.cross_validation import wilson_interval
from atlas_engine.objectives.multitask import mask_other_tasks
from atlas_engine.result import Estimate

__all__ = ["ArithmeticContext", "ArithmeticTask", "TaskImages", "TaskScore", "split_held_out", "vector_of"]

ALIKE = 2.0  # of 255: pictures of a class that differ by less are never on both sides of the cut


@dataclass(frozen=True, eq=False)
class ArithmeticTask:
    """A set of classes: its name, its pictures, and the embeddings of its class names."""

    name: str
    support: Support
    text: Tensor  # (C D)


@dataclass(frozen=True, eq=False)
class ArithmeticContext:
    """A model, a bank that was made for it, and the tasks."""

    backbone: Backbone
    bank: TaskVectorBank
    tasks: tuple[ArithmeticTask, ...]
    model_fingerprint: str

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many classes each task has."""
        return tuple(len(task.text) for task in self.tasks)

    @cached_property
    def head(self) -> Tensor:
        """(ΣC D): the classes of the first task, then those of the next."""
        return torch.cat([task.text for task in self.tasks])

    @property
    def classes(self) -> tuple[str, ...]:
        """Every class of every task, each named once."""
        return tuple(dict.fromkeys(name for task in self.tasks for name in task.support.classes))


@dataclass(frozen=True)
class TaskScore:
    """How many of a task's pictures are named right."""

    right: int
    total: int

    @property
    def share(self) -> float:
        """Of 1."""
        return self.right / self.total

    def estimate(self, method: str) -> Estimate:
        """With its interval, under the method's name."""
        return Estimate(method, self.share, *wilson_interval(self.right, self.total), self.total)


@dataclass(frozen=True, eq=False)
class TaskImages:
    """Squares of several tasks, with class numbers as the scene's head counts them."""

    squares: Tensor  # (N 3 S S) uint8
    labels: Tensor  # (N), 0 … ΣC − 1
    tasks: Tensor  # (N): the task of each, non-decreasing
    sizes: tuple[int, ...]

    def of(self, task: int) -> TaskImages:
        """The pictures of one task."""
        own = self.tasks == task
        return TaskImages(self.squares[own.cpu()], self.labels[own], self.tasks[own], self.sizes)

    def unlabelled(self) -> TaskImages:
        """The same with the first class of its task for each: all that a label then tells is the task."""
        first = torch.tensor((0, *self.sizes[:-1]), device=self.labels.device).cumsum(0)
        return replace(self, labels=first[self.tasks])

    def marks(self, logits: Tensor) -> tuple[TaskScore, ...]:
        """Each task's mark by logits (N ΣC), every picture among the classes of its own task."""
        right = mask_other_tasks(logits, self.labels, self.sizes).argmax(dim=1) == self.labels
        masks = [self.tasks == number for number in range(len(self.sizes))]
        return tuple(TaskScore(int(right[mask].sum()), int(mask.sum())) for mask in masks)


def vector_of(bank: TaskVectorBank, task: str) -> str | None:
    """The task's own vector, by its name or that of its data set; None where the bank has none."""
    if task in bank.tasks:
        return task
    pairs = zip(bank.tasks, bank.infos, strict=True)
    return next((name for name, info in pairs if info.dataset == task), None)


def split_held_out(scene: ArithmeticContext, *, share: float, seed: int) -> tuple[TaskImages, TaskImages]:
    """Pictures to learn from, and about this share of each class that is held out, by seed."""
    parts: tuple[list[TaskImages], list[TaskImages]] = ([], [])
    first = 0
    for number, task in enumerate(scene.tasks):
        shape, support = scene.backbone.preprocessing, task.support
        squares = support.squares(shape.size, resize=shape.resize, interpolation=shape.interpolation)
        groups = near_duplicate_groups(squares, support.labels, tracks=[None] * len(support), alike=ALIKE)
        split = split_groups(
            support.labels, groups, val_share=0, test_share=share, seed=seed, names=support.classes
        )
        labels = torch.tensor(support.labels) + first
        for part, rows in zip(parts, (split.train, split.test), strict=True):
            chosen = torch.tensor(rows)
            part.append(
                TaskImages(squares[chosen], labels[chosen], torch.full_like(chosen, number), scene.sizes)
            )
        first += len(task.text)
    learned, held = (_joined(part, scene.backbone.device) for part in parts)
    return learned, held


def _joined(parts: list[TaskImages], device: torch.device) -> TaskImages:
    return TaskImages(
        torch.cat([part.squares for part in parts]),
        torch.cat([part.labels for part in parts]).to(device),
        torch.cat([part.tasks for part in parts]).to(device),
        parts[0].sizes,
    )
