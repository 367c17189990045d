"""SAR's filter of reliable images against closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from atlas_engine.entropies import entropies
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.sar import SAR


def identity(images):
    return images


def peaked_logits(*shares, classes=10):
    """Logits of images with that share of probability for one class and the rest spread evenly."""
    rows = [[share] + [(1 - share) / (classes - 1)] * (classes - 1) for share in shares]
    return torch.tensor(rows).log()


def test_only_images_below_the_reliable_entropy_are_learned_from():
    logits = peaked_logits(0.95, 0.9, 0.8, 0.3).requires_grad_()  # H = 0.31, 0.54, 0.94, 2.14
    loss = SAR()(identity, Batch(logits))
    (grad,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(entropies(logits)[:2].mean().item())  # E0 = 0.4 ln 10 = 0.92
    assert grad.any(dim=1).tolist() == [True, True, False, False]


def test_the_bound_grows_with_the_logarithm_of_the_classes():
    for classes in (2, 5, 100):
        bound = 0.4 * math.log(classes)
        shares = torch.linspace(1 / classes + 0.01, 0.999, 50).tolist()
        sure = [share for share in shares if entropies(peaked_logits(share, classes=classes)).item() < bound]
        assert 0 < len(sure) < 50
        loss = SAR()(identity, Batch(peaked_logits(*shares, classes=classes)))
        wanted = entropies(peaked_logits(*sure, classes=classes)).mean()
        assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)


@pytest.mark.parametrize("logits", [torch.zeros(3, 4), torch.ones(2, 1)])
def test_where_nothing_is_reliable_the_loss_is_zero_with_a_gradient_of_zero(logits):
    logits = logits.requires_grad_()
    loss = SAR()(identity, Batch(logits))
    (grad,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0.0
    assert not grad.any()


def test_weights_count_among_the_reliable():
    logits = peaked_logits(0.95, 0.9, 0.3)
    loss = SAR()(identity, Batch(logits, weights=torch.tensor([1.0, 3.0, 7.0])))
    low, high, _ = entropies(logits).tolist()
    assert loss.item() == pytest.approx((low + 3 * high) / 4)
