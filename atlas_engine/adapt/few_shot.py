"""Few-shot adaptation: cross-entropy on views of a few labelled pictures. Knows nothing of files or text.

The views are made once and kept, at whatever depth of the tower they are cut (images, or activations above
a frozen part). Each step takes pictures in turn, without repetition until all have had theirs, and one view
of each at random. Every class counts the same, however many pictures it has.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.loop import Ending, LoopConfig, Request, learn
from atlas_engine.adapt.subject import Subject
from atlas_engine.adapt.watch import Stop
from atlas_engine.config import setting
from atlas_engine.heads.base import UNUSED
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.supervised import CrossEntropy
from atlas_engine.result import Step

__all__ = ["FewShotConfig", "few_shot"]


@dataclass(frozen=True, kw_only=True)
class FewShotConfig(LoopConfig):
    """How coefficients are learned from a few labelled pictures."""

    steps: int = setting(24, help="optimiser steps", low=0, high=100_000)
    lr: float = setting(0.05, help="learning rate of the first step", low=0.0, high=100.0)
    batch: int = setting(16, help="pictures a step; all of them where there are fewer", low=1)
    views: int = setting(6, help="random views of each picture, made once and kept", low=1, high=1000)
    share: float | None = setting(
        None,
        help="share of the tower's weights, from its end, that may move, 1 for all; none is the method's own",
        low=0.0,
        high=1.0,
    )
    folds: int = setting(4, help="most parts the pictures are held out in, one after another", low=2, high=64)


def few_shot(
    subject: Subject,
    views: Tensor,
    labels: Tensor,
    *,
    config: FewShotConfig,
    seeds: Sequence[int] = (0,),
    stop: Stop | None = None,
) -> Generator[Step, None, Ending]:
    """Learn from V views of N pictures (V N …) and, for each of R runs, their class numbers (R N).

    A run does not see the pictures that are `UNUSED` in its row: they are held out.
    """
    source = _Turns(views, labels, config.batch)
    return (yield from learn(subject, CrossEntropy(), source, config=config, seeds=seeds, stop=stop))


class _Turns:
    """Batches in which every picture has its turn before any has a second one, run by run."""

    def __init__(self, views: Tensor, labels: Tensor, size: int) -> None:
        self._views, self._labels, self._size = views, labels, size
        self._waiting: dict[int, Tensor] = {}

    def __call__(self, request: Request) -> Batch:
        labels = self._labels[request.run]
        rows = (labels != UNUSED).nonzero().squeeze(1).cpu()
        chosen = self._turn(request, rows).to(labels.device)
        view = torch.randint(len(self._views), (len(chosen),), generator=request.generator)
        counts = torch.bincount(labels[rows.to(labels.device)])
        weights = 1.0 / counts[labels[chosen]]
        images = runtime.for_convolutions(self._views[view.to(chosen.device), chosen])
        return Batch(images, labels=labels[chosen], weights=weights)

    def _turn(self, request: Request, rows: Tensor) -> Tensor:
        size = min(self._size, len(rows))
        waiting = self._waiting.get(request.run, torch.empty(0, dtype=torch.long))
        while len(waiting) < size:
            order = torch.randperm(len(rows), generator=request.generator)
            waiting = torch.cat([waiting, rows[order]])
        chosen, self._waiting[request.run] = waiting[:size], waiting[size:]
        return chosen
