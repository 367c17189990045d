"""The values being learned, AdamW's memory of them, and the best so far. Knows nothing of losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from atlas_engine.adapt.optimiser import AdamState, adamw, keep_runs, unit_norm
from atlas_engine.adapt.subject import Learnable
from atlas_engine.errors import ConfigError

__all__ = ["Best", "Tuner"]


class Tuner:
    """The values being learned and AdamW's memory of each."""

    def __init__(
        self, learnables: Mapping[str, Learnable], *, lr: float, weight_decay: float, normalise: bool
    ) -> None:
        self._learnables = dict(learnables)
        self._lr, self._weight_decay, self._normalise = lr, weight_decay, normalise
        self.values: Mapping[str, Tensor] = {n: one.start.detach().clone() for n, one in learnables.items()}
        self._states = {name: AdamState.zero(value) for name, value in self.values.items()}
        counts = {value.shape[0] for value in self.values.values()}
        if len(counts) != 1:
            raise ConfigError(
                f"what is to be learned has {sorted(counts)} runs. Every tensor needs the same R."
            )
        (self.runs,) = counts
        self.device = next(iter(self.values.values())).device

    def update(self, grads: Mapping[str, Tensor], *, lr_factor: float, alive: Sequence[bool]) -> None:
        """Move every value by one AdamW step, but for the runs that are over."""
        mask = torch.tensor(alive, device=self.device)
        values = {}
        for name, one in self._learnables.items():
            moved, self._states[name] = adamw(
                self.values[name],
                unit_norm(grads[name]) if _or(one.normalise, self._normalise) else grads[name],
                self._states[name],
                lr=self._lr * one.lr_scale * lr_factor,
                weight_decay=_or(one.weight_decay, self._weight_decay),
            )
            values[name] = keep_runs(mask, moved, self.values[name])
        self.values = values


class Best:
    """The best values so far, run by run. A tie keeps the earlier one, so step 0 is beaten or stays."""

    def __init__(self, start: Mapping[str, Tensor], *, runs: int) -> None:
        self.marks = [-math.inf] * runs
        self.values = dict(start)

    def offer(
        self, marks: Sequence[float] | None, values: Mapping[str, Tensor], alive: Sequence[bool]
    ) -> None:
        """Take the values of the runs whose mark is higher than ever."""
        if marks is None:
            return
        better = [good and new > old for good, new, old in zip(alive, marks, self.marks, strict=True)]
        self.marks = [new if won else old for won, new, old in zip(better, marks, self.marks, strict=True)]
        mask = torch.tensor(better, device=next(iter(values.values())).device)
        self.values = {name: keep_runs(mask, value, self.values[name]) for name, value in values.items()}


Value = TypeVar("Value")


def _or(own: Value | None, default: Value) -> Value:
    return default if own is None else own
