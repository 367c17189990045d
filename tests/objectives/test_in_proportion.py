"""Sure answers in proportion: what it pays for, and what it does not."""

from __future__ import annotations

import math

import pytest
import torch

from atlas_engine.entropies import divergence
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.entropy import Entropy, InProportion

SURE = 200 * torch.eye(3)


def loss(logits, proportions, weights=None):
    batch = Batch(torch.zeros(len(logits), 3, 2, 2), weights=weights)
    return InProportion(torch.tensor(proportions))(lambda _images: logits, batch)


def test_sure_answers_in_their_proportions_cost_nothing_and_others_do():
    answers = SURE[[0, 0, 0, 1]]
    assert loss(answers, [0.75, 0.25, 0.0]).item() == pytest.approx(0, abs=1e-5)
    unlike = loss(answers, [0.25, 0.75, 0.0]).item()
    assert unlike == pytest.approx(0.75 * math.log(3) + 0.25 * math.log(1 / 3), abs=1e-5)


def test_a_class_that_is_not_there_is_not_invented():
    there = [0.5, 0.5, 0.0]
    assert loss(SURE[[0, 1, 0, 1]], there) < loss(SURE[[0, 1, 0, 2]], there)
    assert Entropy()(lambda _images: SURE[[0, 1, 0, 1]], Batch(torch.zeros(4, 3, 2, 2))) > Entropy()(
        lambda _images: SURE[[0, 1, 2, 1]], Batch(torch.zeros(4, 3, 2, 2))
    ), "entropy alone pays for it"


def test_with_equal_proportions_it_is_entropy_with_diversity():
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    wanted = Entropy()(lambda _images: logits, Batch(torch.zeros(8, 3, 2, 2))) + math.log(3)
    torch.testing.assert_close(loss(logits, [1 / 3] * 3), wanted)


def test_a_proportion_of_zero_gives_a_finite_slope():
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss(logits, [1.0, 0.0, 0.0]).backward()
    assert logits.grad.isfinite().all()


def test_images_without_weight_do_not_count():
    logits, weights = torch.cat([SURE[[0, 1]], 9 * torch.randn(2, 3)]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert loss(logits, [0.5, 0.5, 0.0], weights).item() == pytest.approx(0, abs=1e-5)
    assert divergence(logits, torch.ones(3) / 3, torch.zeros(4)).item() == 0
