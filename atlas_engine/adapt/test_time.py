"""Test-time adaptation: views of pictures without labels, batch by batch. Knows nothing of files or text.

The views are made once and kept, at whatever depth of the tower they are cut. Pictures come in turn, each
once an epoch. For an objective that trusts some, these are a quarter of each batch, with the class they were
taken for; whom to trust is asked anew every epoch. There is no place for a true label.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from atlas_engine.adapt.loop import Ending, LoopConfig, Request, Score, learn
from atlas_engine.adapt.subject import Subject
from atlas_engine.adapt.watch import Stop
from atlas_engine.config import setting
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.registry import find_objective
from atlas_engine.objectives.trusted import UNTRUSTED, trusted_labels
from atlas_engine.result import Step

__all__ = ["TestTimeConfig", "Unlabelled", "Views", "granted", "learn_unlabelled"]

TRUSTED_PART = 4  # one in four of a batch
CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class TestTimeConfig(LoopConfig):
    """How coefficients are learned from pictures without labels."""

    __test__ = False  # no test class, whatever pytest reads into its name

    steps: int = setting(16, help="optimiser steps, or more where the epochs take more", low=0, high=100_000)
    epochs: int = setting(5, help="times that each picture is looked at, at least", low=0, high=1000)
    lr: float = setting(0.02, help="learning rate of the first step", low=0.0, high=100.0)
    batch: int = setting(32, help="pictures a step; all of them where there are fewer", low=1)
    views: int = setting(
        2, help="weak and strong views of each picture, made once and kept", low=1, high=1000
    )
    share: float = setting(
        0.5, help="share of the tower's weights, from its end, that may move; 1 for all", low=0.0, high=1.0
    )


@dataclass(frozen=True, eq=False)
class Views:
    """The pictures as they are (N …), and V weak and strong views of each (V N …)."""

    clean: Tensor
    weak: Tensor
    strong: Tensor


def learn_unlabelled(
    subject: Subject,
    views: Views,
    *,
    objective: str,
    config: TestTimeConfig,
    proportions: Tensor | None = None,
    score: Score | None = None,
    seed: int = 0,
    stop: Stop | None = None,
) -> Generator[Step, None, Ending]:
    """Make an objective small over the views; what it asks of the loop (`ObjectiveRow.loop`) is granted.

    `proportions` (C) are for an objective that needs them.
    """
    row = find_objective(objective)
    asked = granted(config, objective, pictures=len(views.clean))
    source = Unlabelled(views, size=config.batch, trusting=row.needs_trusted)
    loss = row.make(proportions=proportions) if row.needs_proportions else row.make()
    return (yield from learn(subject, loss, source, config=asked, seeds=(seed,), score=score, stop=stop))


def granted(config: TestTimeConfig, objective: str, *, pictures: int) -> TestTimeConfig:
    """What a run really goes by: steps for all epochs, and what the objective asks of the loop.

    An objective's wish yields to a setting that is not the usual one. Five epochs of 100 pictures in batches
    of 32 are 16 steps; of 1,000 they are 157. No steps at all stay none.
    """
    batch = max(1, min(config.batch, pictures))
    steps = max(config.steps, math.ceil(config.epochs * pictures / batch)) if config.steps else 0
    usual = TestTimeConfig()
    wishes = find_objective(objective).loop
    free = {name: wish for name, wish in wishes.items() if getattr(config, name) == getattr(usual, name)}
    changes: dict[str, Any] = {"steps": steps, **free}
    return replace(config, **changes)


class Unlabelled:
    """A source: pictures in turn; where some are trusted, a quarter of them, and others in turn."""

    def __init__(self, views: Views, *, size: int, trusting: bool = False) -> None:
        self._views = views
        self._size = min(size, len(views.clean))
        self._trusted = self._size // TRUSTED_PART if trusting else 0  # of a batch
        self._waiting = torch.empty(0, dtype=torch.long)
        self._labels = torch.full((len(views.clean),), UNTRUSTED)

    def __call__(self, request: Request) -> Batch:
        """The batch of one step; no picture is in it twice."""
        if len(set(self._waiting.tolist())) < self._size:
            self._begin_epoch(request)
        trusted = self._draw_trusted(request.generator)
        others = self._take_others(self._size - len(trusted), beside=trusted)
        rows = torch.cat([trusted, others])
        labels = torch.full((len(rows),), UNTRUSTED)
        labels[: len(trusted)] = self._labels[trusted]
        view = torch.randint(len(self._views.weak), (len(rows),), generator=request.generator)
        device = self._views.clean.device
        view, rows = view.to(device), rows.to(device)
        return Batch(
            self._views.weak[view, rows],
            labels=labels.to(device),
            strong=self._views.strong[view, rows],
            progress=request.index / request.of,
        )

    def _begin_epoch(self, request: Request) -> None:
        """Line all pictures up anew, behind those left over; ask the model as it stands whom to trust."""
        if self._trusted:
            parts = torch.split(self._views.clean, CHUNK)
            self._labels = trusted_labels(torch.cat([request.logits_fn(part) for part in parts])).cpu()
        order = torch.randperm(len(self._views.clean), generator=request.generator)
        self._waiting = torch.cat([self._waiting, order])

    def _draw_trusted(self, generator: torch.Generator) -> Tensor:
        chosen = (self._labels != UNTRUSTED).nonzero().squeeze(1)
        return chosen[torch.randperm(len(chosen), generator=generator)[: self._trusted]]

    def _take_others(self, count: int, *, beside: Tensor) -> Tensor:
        """The first `count` different ones in line; who is in the batch already has had their turn."""
        there, taken, later = set(beside.tolist()), list[int](), list[int]()
        for row in self._waiting.tolist():
            if row in there:
                continue
            (later if row in taken or len(taken) == count else taken).append(row)
        self._waiting = torch.tensor(later, dtype=torch.long)
        return torch.tensor(taken, dtype=torch.long)
