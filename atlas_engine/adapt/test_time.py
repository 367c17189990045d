"""Test-time adaptation: views of pictures without labels, batch by batch. Knows nothing of files or text.

The views are made once and kept, at whatever depth of the tower they are cut. A quarter of each batch are
pictures that are trusted, with the class they were taken for; whom to trust is asked anew every epoch. The
others come in turn, without repetition until all have had theirs. There is no place for a true label.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from atlas_engine.adapt.loop import Ending, LoopConfig, Request, Score, learn
from atlas_engine.adapt.subject import Subject
from atlas_engine.adapt.watch import Stop
from atlas_engine.config import setting
from atlas_engine.objectives.base import Batch, LogitsFn
from atlas_engine.objectives.registry import find_objective
from atlas_engine.objectives.trusted import UNTRUSTED, trusted_labels
from atlas_engine.result import Step

__all__ = ["TestTimeConfig", "Unlabelled", "Views", "learn_unlabelled"]

TRUSTED_PART = 4  # one in four of a batch
CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class TestTimeConfig(LoopConfig):
    """How coefficients are learned from pictures without labels."""

    __test__ = False  # no test class, whatever pytest reads into its name

    steps: int = setting(16, help="optimiser steps", low=0, high=100_000)
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
    trust: LogitsFn | None = None,
    proportions: Tensor | None = None,
    score: Score | None = None,
    seed: int = 0,
    stop: Stop | None = None,
) -> Generator[Step, None, Ending]:
    """Make an objective small over the views; what it asks of the loop (`ObjectiveRow.loop`) is granted.

    `trust` answers the pictures as they are, where the subject's own logits are no class scores (simclr).
    `proportions` (C) are for an objective that needs them.
    """
    row = find_objective(objective)
    changes: dict[str, Any] = dict(row.loop)
    asked = replace(config, **changes)
    source = Unlabelled(views, size=config.batch, trust=trust)
    loss = row.make(proportions=proportions) if row.needs_proportions else row.make()
    return (yield from learn(subject, loss, source, config=asked, seeds=(seed,), score=score, stop=stop))


class Unlabelled:
    """A source: a quarter of trusted pictures, the rest in turn."""

    def __init__(self, views: Views, *, size: int, trust: LogitsFn | None = None) -> None:
        self._views, self._trust = views, trust
        self._size = min(size, len(views.clean))
        self._waiting = torch.empty(0, dtype=torch.long)
        self._labels = torch.empty(0, dtype=torch.long)

    def __call__(self, request: Request) -> Batch:
        """The batch of one step."""
        size = self._size
        if len(self._waiting) < size - size // TRUSTED_PART:
            self._begin_epoch(request)
        trusted = self._draw_trusted(size // TRUSTED_PART, request.generator)
        rest = size - len(trusted)
        others, self._waiting = self._waiting[:rest], self._waiting[rest:]
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
        """Ask the model as it stands whom to trust, and line all pictures up anew."""
        ask = self._trust or request.logits_fn
        logits = torch.cat([ask(part) for part in torch.split(self._views.clean, CHUNK)])
        self._labels = trusted_labels(logits).cpu()
        order = torch.randperm(len(logits), generator=request.generator)
        self._waiting = torch.cat([self._waiting, order])

    def _draw_trusted(self, count: int, generator: torch.Generator) -> Tensor:
        chosen = (self._labels != UNTRUSTED).nonzero().squeeze(1)
        return chosen[torch.randperm(len(chosen), generator=generator)[:count]]
