"""Samplers: the batch of each step of the loop.

    LabelledSampler     few-shot: each run has its own labels, all classes weigh the same
    FreshViewSampler    few-shot as in the paper: new random views at each step
    TaskSampler         task arithmetic: equally many images of each task, all tasks weigh the same
    UnlabelledSampler   no labels: weak and strong views, and a class for some images that are trusted

Views (V N …) are images or activations behind a frozen prefix, made once; a batch has one view, drawn at
random, of each of its images. Samplers of new views hold pixels or `StreamedActivations`, which may lie in a
file, and read the rows of one batch. Every image but trusted ones is used before any is used again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.optimise import BatchRequest
from atlas_engine.adapt.streamed_activations import Activations, split_activations, take_rows
from atlas_engine.errors import ConfigError
from atlas_engine.heads.base import UNUSED
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.ufm import UNTRUSTED, trusted_labels

__all__ = ["FreshViewSampler", "LabelledSampler", "TaskSampler", "UnlabelledSampler", "Views"]

TRUSTED_PART = 4  # one image in four of a batch is a trusted one (aTLAS, UFM)
IMAGES_AT_ONCE = 64  # through the model, to find out which images to trust


class _ShuffledQueue:
    """Row numbers in random order, shuffled anew for each pass: every row comes before any comes again."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self._waiting = torch.empty(0, dtype=torch.long)

    def take(self, count: int, generator: torch.Generator) -> Tensor:
        """The next `count` rows."""
        while len(self._waiting) < count:
            order = torch.randperm(len(self._rows), generator=generator)
            self._waiting = torch.cat([self._waiting, self._rows[order]])
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken


class LabelledSampler:
    """Batches of labelled images, run by run."""

    def __init__(self, views: Float[Tensor, "V N ..."], labels: Int[Tensor, "R N"], size: int) -> None:
        """`labels` hold `UNUSED` for an image that is held out of a run."""
        self._views, self._labels, self._size = views, labels, size
        self._rows = [(row != UNUSED).nonzero().squeeze(1).cpu() for row in labels]
        self._queues = [_ShuffledQueue(rows) for rows in self._rows]

    def __call__(self, request: BatchRequest) -> Batch:
        """The batch of a step; an image weighs 1/n where its class has n images in the run."""
        labels, rows = self._labels[request.run], self._rows[request.run]
        size = min(self._size, len(rows))
        chosen = self._queues[request.run].take(size, request.generator).to(labels.device)
        view = torch.randint(len(self._views), (len(chosen),), generator=request.generator)
        counts = torch.bincount(labels[rows.to(labels.device)])
        images = runtime.to_channels_last(self._views[view.to(chosen.device), chosen])
        return Batch(images, labels=labels[chosen], weights=1.0 / counts[labels[chosen]])


class FreshViewSampler:
    """Batches of new random views, run by run; a batch larger than the support repeats its images."""

    def __init__(
        self,
        pixels: UInt8[Tensor, "N 3 S S"],
        labels: Int[Tensor, "R N"],
        *,
        size: int,
        view: Callable[[Tensor, torch.Generator], Tensor],
        to_input: Callable[[Tensor], Tensor],
    ) -> None:
        """`view` draws views of pixels, `to_input` prepares them."""
        self._pixels, self._labels, self._size = pixels, labels, size
        self._view, self._to_input = view, to_input
        self._queues = [_ShuffledQueue((row != UNUSED).nonzero().squeeze(1).cpu()) for row in labels]

    def __call__(self, request: BatchRequest) -> Batch:
        """The batch of a step; every image weighs the same."""
        labels = self._labels[request.run]
        chosen = self._queues[request.run].take(self._size, request.generator)
        images = self._to_input(self._view(self._pixels[chosen], request.generator))
        return Batch(images, labels=labels[chosen.to(labels.device)])


class TaskSampler:
    """Batches with equally many images of each task. Tasks weigh the same, as do the classes of a task."""

    def __init__(
        self,
        views: Float[Tensor, "V N ..."],
        labels: Int[Tensor, " N"],
        tasks: Int[Tensor, " N"],
        *,
        size: int,
    ) -> None:
        """`tasks` has the task number of each image."""
        self._views, self._labels = views, labels
        rows = [(tasks == number).nonzero().squeeze(1).cpu() for number in range(int(tasks.max()) + 1)]
        self._queues = [_ShuffledQueue(task_rows) for task_rows in rows]
        self._size = max(1, size // len(rows))  # images of each task
        self._weights = 1.0 / labels.bincount()[labels]  # (N)

    def __call__(self, request: BatchRequest) -> Batch:
        """The batch of a step."""
        parts = [queue.take(self._size, request.generator) for queue in self._queues]
        weights = [self._weights[rows] / self._weights[rows].sum() for rows in parts]
        chosen = torch.cat(parts).to(self._labels.device)
        view = torch.randint(len(self._views), (len(chosen),), generator=request.generator)
        images = self._views[view.to(chosen.device), chosen]
        return Batch(images, labels=self._labels[chosen], weights=torch.cat(weights))


@dataclass(frozen=True, eq=False)
class Views:
    """Unaugmented images, and V weak and V strong views of each, made once."""

    clean: Activations  # (N …)
    weak: Tensor | None  # (V N …); None where each image is its own weak view
    strong: Tensor | None  # (V N …); None where the sampler draws new ones


class UnlabelledSampler:
    """Batches of weak and strong views, with no image twice in a batch and no true labels.

    With `trusting`, up to a quarter of a batch are images that the model is confident of, labelled with the
    class it predicted at the start of the epoch. All other images have the label `UNTRUSTED`.
    """

    def __init__(
        self,
        views: Views,
        *,
        size: int,
        trusting: bool = False,
        strong_views: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    ) -> None:
        """`strong_views(rows, generator)` draws new strong views, in place of those in `views`."""
        if views.strong is None and strong_views is None:
            raise ConfigError("there are no strong views. Give some, or a function that draws them.")
        self._views, self._strong_views = views, strong_views
        self._size = min(size, len(views.clean))
        self._trusted_size = self._size // TRUSTED_PART if trusting else 0
        self._waiting = torch.empty(0, dtype=torch.long)
        self._trusted_labels = torch.full((len(views.clean),), UNTRUSTED)

    def __call__(self, request: BatchRequest) -> Batch:
        """The batch of a step."""
        if len(set(self._waiting.tolist())) < self._size:
            self._begin_epoch(request)
        # up to a quarter of trusted images, then the next images of the epoch
        trusted = self._draw_trusted(request.generator)
        others = self._take_others(self._size - len(trusted), except_for=trusted)
        rows = torch.cat([trusted, others])
        labels = torch.full((len(rows),), UNTRUSTED)
        labels[: len(trusted)] = self._trusted_labels[trusted]
        # one weak and one strong view of each
        clean, weak, strong = self._views.clean, self._views.weak, self._views.strong
        count = 1 if weak is None else len(weak)
        view = torch.randint(count, (len(rows),), generator=request.generator)
        drawn = self._strong_views(rows, request.generator) if self._strong_views else None
        view, rows = view.to(clean.device), rows.to(clean.device)
        return Batch(
            take_rows(clean, rows) if weak is None else weak[view, rows],
            labels=labels.to(clean.device),
            strong=strong[view, rows] if drawn is None and strong is not None else drawn,
            progress=request.index / request.of,
        )

    def _begin_epoch(self, request: BatchRequest) -> None:
        """Queue all images behind those left over, and let the current model say which to trust."""
        if self._trusted_size:
            parts = split_activations(self._views.clean, IMAGES_AT_ONCE)
            logits = torch.cat([request.logits_fn(part) for part in parts])
            self._trusted_labels = trusted_labels(logits).cpu()
        order = torch.randperm(len(self._views.clean), generator=request.generator)
        self._waiting = torch.cat([self._waiting, order])

    def _draw_trusted(self, generator: torch.Generator) -> Tensor:
        trusted = (self._trusted_labels != UNTRUSTED).nonzero().squeeze(1)
        return trusted[torch.randperm(len(trusted), generator=generator)[: self._trusted_size]]

    def _take_others(self, count: int, *, except_for: Tensor) -> Tensor:
        """The first `count` different images in the queue; those of `except_for` leave it as well."""
        already_in_batch, taken, later = set(except_for.tolist()), list[int](), list[int]()
        for row in self._waiting.tolist():
            if row in already_in_batch:
                continue
            (later if row in taken or len(taken) == count else taken).append(row)
        self._waiting = torch.tensor(later, dtype=torch.long)
        return torch.tensor(taken, dtype=torch.long)
