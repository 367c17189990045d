"""A linear classifier as the loop's subject: a real model whose answers can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from atlas_engine.adapt.trainable import TrainableTensor
from atlas_engine.objectives.base import Batch


class Classifier:
    """logits = x @ w for w (R F C), with leaves of its own at each step, as a composed tower has."""

    def __init__(self, start: Tensor) -> None:
        self.start = start
        self.forwards = 0

    @property
    def tensors_to_learn(self) -> Mapping[str, TrainableTensor]:
        return {"w": TrainableTensor(self.start)}

    def at(self, values: Mapping[str, Tensor]) -> _AtValues:
        return _AtValues(self, values["w"].clone().requires_grad_())


class _AtValues:
    def __init__(self, owner: Classifier, w: Tensor) -> None:
        self.owner, self.w = owner, w

    def logits_fn(self, run: int):
        def logits(images: Tensor) -> Tensor:
            self.owner.forwards += 1
            return images @ self.w[run]

        return logits

    def gradients(self) -> Mapping[str, Tensor]:
        return {"w": torch.zeros_like(self.w) if self.w.grad is None else self.w.grad}


class Cloud:
    """A source: random points, labelled by the sign of their first coordinate, from the run's own seed."""

    def __init__(self, size: int = 8) -> None:
        self.size = size
        self.requests = []

    def __call__(self, request) -> Batch:
        self.requests.append(request)
        points = torch.randn(self.size, 3, generator=request.generator)
        return Batch(points, (points[:, 0] > 0).long())


@pytest.fixture
def classifier():
    return lambda runs=1: Classifier(torch.zeros(runs, 3, 2))


@pytest.fixture
def cloud():
    return Cloud
