"""Few-shot adaptation: cross-entropy on a handful of labelled squares. Knows nothing of files or text.

Each step takes a random view of pictures drawn without repetition until all have had their turn, as often as
the steps need.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.adapt.loop import Ending, LoopConfig, Request, learn
from atlas_engine.adapt.subject import Subject
from atlas_engine.adapt.watch import Stop
from atlas_engine.config import setting
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.supervised import CrossEntropy
from atlas_engine.result import Step

__all__ = ["FewShotConfig", "View", "few_shot"]

View = Callable[[Tensor, torch.Generator], Tensor]
"""uint8 squares (B 3 S S) to normalised images of the same shape."""


@dataclass(frozen=True, kw_only=True)
class FewShotConfig(LoopConfig):
    """How coefficients are learned from a few labelled pictures."""

    steps: int = setting(40, help="optimiser steps", low=0, high=100_000)
    batch: int = setting(32, help="pictures a step; all of them where there are fewer", low=1)


def few_shot(
    subject: Subject,
    pixels: Tensor,
    labels: Tensor,
    view: View,
    *,
    config: FewShotConfig,
    seeds: Sequence[int] = (0,),
    stop: Stop | None = None,
) -> Generator[Step, None, Ending]:
    """Learn from squares (N 3 S S) and their class numbers (N)."""
    source = _Turns(pixels, labels, view, min(config.batch, len(pixels)))
    return (yield from learn(subject, CrossEntropy(), source, config=config, seeds=seeds, stop=stop))


class _Turns:
    """Batches in which every picture has its turn before any has a second one, run by run."""

    def __init__(self, pixels: Tensor, labels: Tensor, view: View, size: int) -> None:
        self._pixels, self._labels, self._view, self._size = pixels, labels, view, size
        self._waiting: dict[int, Tensor] = {}

    def __call__(self, request: Request) -> Batch:
        waiting = self._waiting.get(request.run, torch.empty(0, dtype=torch.long))
        while len(waiting) < self._size:
            order = torch.randperm(len(self._pixels), generator=request.generator)
            waiting = torch.cat([waiting, order])
        chosen, self._waiting[request.run] = waiting[: self._size], waiting[self._size :]
        images = self._view(self._pixels[chosen], request.generator)
        return Batch(images, labels=self._labels[chosen]).to(self._labels.device)
