"""The input of an adaptation: a model, a bank that was made for it, and the images of one or more tasks.

    context = AdaptContext(backbone, bank, fingerprint, (TaskData("photos", classes, text, pixels, labels),))
    context.pixels, context.labels, context.text          # of the only task
    context.head, context.class_counts                    # of all tasks, one after the other

Few-shot has one task with labels, label-free adaptation one without, task arithmetic several with labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.clip.backbone import Backbone

__all__ = ["AdaptContext", "TaskData"]


@dataclass(frozen=True, eq=False)
class TaskData:
    """The classes and the images of one task."""

    name: str
    classes: tuple[str, ...]
    text: Float[Tensor, "C D"]  # class embeddings of length 1, on the model's device
    pixels: UInt8[Tensor, "N 3 S S"]  # at the model's input size, on the CPU
    labels: Int[Tensor, " N"] | None = None  # on the model's device; None for images without labels


@dataclass(frozen=True, eq=False)
class AdaptContext:
    """A model, its bank and the tasks; read-only."""

    backbone: Backbone
    bank: TaskVectorBank
    model_fingerprint: str
    tasks: tuple[TaskData, ...]
    validation: TaskData | None = None  # more labelled images of the only task, to choose the best epoch
    templates: tuple[str, ...] | None = None  # that the class names were put into; None for the model's own
    prototypes: bool = False  # whether the class embeddings are means of the support's features

    # ---- for a context with one task

    @property
    def task(self) -> TaskData:
        """The only task."""
        (task,) = self.tasks
        return task

    @property
    def text(self) -> Float[Tensor, "C D"]:
        """The only task's class embeddings."""
        return self.task.text

    @property
    def pixels(self) -> UInt8[Tensor, "N 3 S S"]:
        """The only task's images."""
        return self.task.pixels

    @property
    def labels(self) -> Int[Tensor, " N"]:
        """The only task's labels; it must have some."""
        assert self.task.labels is not None, "this task has no labels"
        return self.task.labels

    # ---- over all tasks

    @property
    def classes(self) -> tuple[str, ...]:
        """Every class of every task, each named once."""
        return tuple(dict.fromkeys(name for task in self.tasks for name in task.classes))

    @property
    def class_counts(self) -> tuple[int, ...]:
        """The number of classes of each task."""
        return tuple(len(task.classes) for task in self.tasks)

    @cached_property
    def head(self) -> Float[Tensor, "C D"]:
        """Class embeddings of all tasks, one task after another; C counts the classes of all."""
        return torch.cat([task.text for task in self.tasks])
