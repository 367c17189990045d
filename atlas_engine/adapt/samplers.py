"""A batch for each step of the loop, out of views that were made once and kept.

    LabelledSampler     few-shot: each run sees its own labels, every class weighs the same
    TaskSampler         task arithmetic: as many images of each task, every task weighs the same
    FreshViewSampler    the paper's few-shot: new random views at each step
    UnlabelledSampler   test time: weak and strong views, some images with the class they are trusted to have

The views (V N …) that a sampler is given may be images or activations behind a frozen prefix. In each sampler
every image has its turn before any has a second one, and one of its V views is drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.optimise import BatchRequest
from atlas_engine.heads.base import UNUSED
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.ufm import UNTRUSTED, trusted_labels

__all__ = ["FreshViewSampler", "LabelledSampler", "TaskSampler", "UnlabelledSampler", "Views"]

TRUSTED_PART = 4  # one in four of a batch is a trusted image (aTLAS, UFM)
IMAGES_AT_ONCE = 64  # through the model, when it is asked which images to trust


class _ShuffledQueue:
    """Row numbers in random order, again and again: no row comes back before all have had their turn."""

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

    def __init__(self, views: Tensor, labels: Tensor, size: int) -> None:
        """`views` (V N …); `labels` (R N) of each run, in which `UNUSED` marks images held out of it."""
        self._views, self._labels, self._size = views, labels, size
        self._rows = [(row != UNUSED).nonzero().squeeze(1).cpu() for row in labels]
        self._queues = [_ShuffledQueue(rows) for rows in self._rows]

    def __call__(self, request: BatchRequest) -> Batch:
        """The batch of a step; a class with n images in the run weighs 1/n each."""
        labels, rows = self._labels[request.run], self._rows[request.run]
        size = min(self._size, len(rows))
        chosen = self._queues[request.run].take(size, request.generator).to(labels.device)
        view = torch.randint(len(self._views), (len(chosen),), generator=request.generator)
        counts = torch.bincount(labels[rows.to(labels.device)])
        images = runtime.to_channels_last(self._views[view.to(chosen.device), chosen])
        return Batch(images, labels=labels[chosen], weights=1.0 / counts[labels[chosen]])


class FreshViewSampler:
    """Batches of new random views, run by run; a small support comes several times in a batch."""

    def __init__(
        self,
        pixels: Tensor,
        labels: Tensor,
        *,
        size: int,
        view: Callable[[Tensor, torch.Generator], Tensor],
        to_input: Callable[[Tensor], Tensor],
    ) -> None:
        """`pixels` (N 3 S S) uint8, `labels` (R N); `view` draws views, `to_input` makes the model's
        input."""
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
    """Batches with as many images of each task. Tasks weigh the same, and so do the classes of a task."""

    def __init__(self, views: Tensor, labels: Tensor, tasks: Tensor, *, size: int) -> None:
        """`views` (V N …), `labels` (N) and the task number of each image, `tasks` (N)."""
        self._views, self._labels = views, labels
        rows = [(tasks == number).nonzero().squeeze(1).cpu() for number in range(int(tasks.max()) + 1)]
        self._queues = [_ShuffledQueue(own) for own in rows]
        self._size = max(1, size // len(rows))  # of each task
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
    """Images as they are, `clean` (N …), and V weak and V strong views of each, (V N …)."""

    clean: Tensor
    weak: Tensor
    strong: Tensor


class UnlabelledSampler:
    """Batches of weak and strong views; no image is in a batch twice, and there is no place for a true label.

    With `trusting`, up to a quarter of a batch are images that the model is sure of, each with the class it
    is taken for; the model is asked anew every epoch. The others have the label `UNTRUSTED`.
    """

    def __init__(
        self,
        views: Views,
        *,
        size: int,
        trusting: bool = False,
        strong_views: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    ) -> None:
        """`strong_views` (rows, generator) draws new strong views in place of those that were kept."""
        self._views, self._strong_views = views, strong_views
        self._size = min(size, len(views.clean))
        self._trusted_size = self._size // TRUSTED_PART if trusting else 0
        self._waiting = torch.empty(0, dtype=torch.long)
        self._trusted_labels = torch.full((len(views.clean),), UNTRUSTED)

    def __call__(self, request: BatchRequest) -> Batch:
        """The batch of a step."""
        if len(set(self._waiting.tolist())) < self._size:
            self._begin_epoch(request)
        # a quarter of trusted images, then others whose turn it is
        trusted = self._draw_trusted(request.generator)
        others = self._take_others(self._size - len(trusted), besides=trusted)
        rows = torch.cat([trusted, others])
        labels = torch.full((len(rows),), UNTRUSTED)
        labels[: len(trusted)] = self._trusted_labels[trusted]
        # one weak and one strong view of each
        view = torch.randint(len(self._views.weak), (len(rows),), generator=request.generator)
        device = self._views.clean.device
        drawn = self._strong_views(rows, request.generator) if self._strong_views else None
        view, rows = view.to(device), rows.to(device)
        return Batch(
            self._views.weak[view, rows],
            labels=labels.to(device),
            strong=self._views.strong[view, rows] if drawn is None else drawn,
            progress=request.index / request.of,
        )

    def _begin_epoch(self, request: BatchRequest) -> None:
        """Queue all images behind those left over, and ask the model as it stands which to trust."""
        if self._trusted_size:
            parts = torch.split(self._views.clean, IMAGES_AT_ONCE)
            logits = torch.cat([request.logits_fn(part) for part in parts])
            self._trusted_labels = trusted_labels(logits).cpu()
        order = torch.randperm(len(self._views.clean), generator=request.generator)
        self._waiting = torch.cat([self._waiting, order])

    def _draw_trusted(self, generator: torch.Generator) -> Tensor:
        trusted = (self._trusted_labels != UNTRUSTED).nonzero().squeeze(1)
        return trusted[torch.randperm(len(trusted), generator=generator)[: self._trusted_size]]

    def _take_others(self, count: int, *, besides: Tensor) -> Tensor:
        """The first `count` different images in the queue; those of `besides` have had their turn."""
        present, taken, later = set(besides.tolist()), list[int](), list[int]()
        for row in self._waiting.tolist():
            if row in present:
                continue
            (later if row in taken or len(taken) == count else taken).append(row)
        self._waiting = torch.tensor(later, dtype=torch.long)
        return torch.tensor(taken, dtype=torch.long)
