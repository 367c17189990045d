"""Entropy and diversity against closed forms; never NaN, however sure the answers."""

from __future__ import annotations

import math

import pytest
import torch

from atlas_engine.entropies import entropies, marginal_entropy
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.entropy import Entropy
from atlas_engine.runtime import generator


def identity(images):
    return images


def draws(*shape, seed=0, size=3.0):
    return size * torch.randn(shape, generator=generator(seed))


def plain_entropy(probs):
    return -(probs * probs.log()).sum(-1)


def test_entropies_run_from_zero_to_the_logarithm_of_the_classes():
    even, sure = entropies(torch.tensor([[0.0] * 5, [1e4, 0, 0, 0, 0]])).tolist()
    assert even == pytest.approx(math.log(5))
    assert sure == 0.0


@pytest.mark.parametrize("diversity", [0.0, 0.5, 1.0])
def test_the_loss_is_mean_entropy_less_the_entropy_of_the_mean(diversity):
    logits, weights = draws(7, 4), torch.tensor([1.0, 2.0, 0.0, 0.5, 1.0, 0.0, 3.0])
    probs = logits.double().softmax(-1)
    wanted = plain_entropy(probs).mean() - diversity * plain_entropy(probs.mean(0))
    objective = Entropy(diversity=diversity)
    assert objective(identity, Batch(logits)).item() == pytest.approx(wanted.item(), abs=1e-6)
    shares = weights.double() / weights.sum()
    wanted = (shares * plain_entropy(probs)).sum() - diversity * plain_entropy(shares @ probs)
    assert objective(identity, Batch(logits, weights=weights)).item() == pytest.approx(
        wanted.item(), abs=1e-6
    )


def test_the_gradient_is_that_of_the_formula():
    logits = draws(6, 3).requires_grad_()
    (grad,) = torch.autograd.grad(Entropy()(identity, Batch(logits)), logits)
    exact = logits.detach().double().requires_grad_()
    probs = exact.softmax(-1)
    (wanted,) = torch.autograd.grad(plain_entropy(probs).mean() - plain_entropy(probs.mean(0)), exact)
    torch.testing.assert_close(grad, wanted.float(), atol=1e-6, rtol=1e-4)


def test_answers_that_differ_are_better_than_one_answer_for_all():
    apart, same = 50 * torch.eye(2), 50 * torch.eye(2)[[0, 0]]
    assert Entropy()(identity, Batch(apart)).item() == pytest.approx(-math.log(2))
    assert Entropy()(identity, Batch(same)).item() == pytest.approx(0.0, abs=1e-6)


def test_one_image_alone_teaches_nothing():
    logits = draws(1, 5).requires_grad_()
    loss = Entropy()(identity, Batch(logits))
    (grad,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(0.0, abs=1e-6)
    torch.testing.assert_close(grad, torch.zeros_like(grad), atol=1e-6, rtol=0)


@pytest.mark.parametrize("weights", [None, torch.tensor([1.0, 1.0, 0.0]), torch.zeros(3)])
def test_no_logits_and_no_weights_make_it_nan(weights):
    logits = torch.tensor([[1e4, 0.0, -1e4], [1e4, 0.0, 0.0], [0.0, 0.0, 0.0]]).requires_grad_()
    loss = Entropy()(identity, Batch(logits, weights=weights))
    (grad,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(loss)
    assert torch.isfinite(grad).all()
    if weights is not None and not weights.any():
        assert loss.item() == 0.0
        assert not grad.any()


def test_the_marginal_of_images_without_weight_is_that_of_the_rest():
    logits = draws(5, 3)
    weights = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    wanted = marginal_entropy(logits[[0, 2, 3]])
    torch.testing.assert_close(marginal_entropy(logits, weights), wanted)
