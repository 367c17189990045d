"""The images of several tasks, split into those to learn from and those held out.

learned, held_out = split_held_out(context, share=0.35, seed=0)
[score.share for score in held_out.scores(logits)]         # one per task, among its own classes
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from atlas_engine.adapt.context import AdaptContext
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.data.split import group_near_duplicates, split_groups
from atlas_engine.heads.cross_validation import wilson_interval
from atlas_engine.objectives.multitask import mask_other_tasks
from atlas_engine.result import Estimate

__all__ = ["TaskImages", "TaskScore", "split_held_out", "vector_of"]

NEAR_DUPLICATE = 2.0  # of 255: images of a class that differ by less are on the same side of the split


@dataclass(frozen=True)
class TaskScore:
    """How many of a task's images are classified right."""

    right: int
    total: int

    @property
    def share(self) -> float:
        """The accuracy, 0 … 1."""
        return self.right / self.total

    def estimate(self, method: str) -> Estimate:
        """The accuracy with its interval, under the method's name."""
        return Estimate(method, self.share, *wilson_interval(self.right, self.total), self.total)


@dataclass(frozen=True, eq=False)
class TaskImages:
    """Images of several tasks. Labels number the classes of all tasks, as rows of `AdaptContext.head`."""

    pixels: UInt8[Tensor, "N 3 S S"]
    labels: Int[Tensor, " N"]  # 0 … ΣC − 1
    tasks: Int[Tensor, " N"]  # the task number of each image, non-decreasing
    class_counts: tuple[int, ...]  # of each task

    def of(self, task: int) -> TaskImages:
        """The images of one task."""
        own = self.tasks == task
        return TaskImages(self.pixels[own.cpu()], self.labels[own], self.tasks[own], self.class_counts)

    def without_labels(self) -> TaskImages:
        """The same images, each labelled with the first class of its task, so only its task is known."""
        first = torch.tensor((0, *self.class_counts[:-1]), device=self.labels.device).cumsum(0)
        return replace(self, labels=first[self.tasks])

    def scores(self, logits: Float[Tensor, "N C"]) -> tuple[TaskScore, ...]:
        """The score of each task; every image is classified among the classes of its own task."""
        right = mask_other_tasks(logits, self.labels, self.class_counts).argmax(dim=1) == self.labels
        masks = [self.tasks == number for number in range(len(self.class_counts))]
        return tuple(TaskScore(int(right[mask].sum()), int(mask.sum())) for mask in masks)


def vector_of(bank: TaskVectorBank, task: str) -> str | None:
    """The name of the vector of this task or data set in the bank, or None."""
    if task in bank.tasks:
        return task
    pairs = zip(bank.tasks, bank.infos, strict=True)
    return next((name for name, info in pairs if info.dataset == task), None)


def split_held_out(context: AdaptContext, *, share: float, seed: int) -> tuple[TaskImages, TaskImages]:
    """Images to learn from, and about `share` of each class held out; near-duplicates stay together."""
    sides: tuple[list[TaskImages], list[TaskImages]] = ([], [])
    first = 0  # number of the task's first class among all classes
    for number, task in enumerate(context.tasks):
        assert task.labels is not None, "task arithmetic learns from labelled images"
        labels = task.labels.tolist()
        groups = group_near_duplicates(task.pixels, labels, tracks=[None] * len(labels), alike=NEAR_DUPLICATE)
        split = split_groups(labels, groups, val_share=0, test_share=share, seed=seed, names=task.classes)
        for side, rows in zip(sides, (split.train, split.test), strict=True):
            chosen = torch.tensor(rows)
            side.append(
                TaskImages(
                    task.pixels[chosen],
                    torch.tensor(labels)[chosen] + first,
                    torch.full_like(chosen, number),
                    context.class_counts,
                )
            )
        first += len(task.classes)
    learned, held_out = (_join(side, context.backbone.device) for side in sides)
    return learned, held_out


def _join(parts: list[TaskImages], device: torch.device) -> TaskImages:
    return TaskImages(
        torch.cat([part.pixels for part in parts]),
        torch.cat([part.labels for part in parts]).to(device),
        torch.cat([part.tasks for part in parts]).to(device),
        parts[0].class_counts,
    )
