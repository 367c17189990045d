"""Entropy with diversity or proportions against closed forms; never NaN, however confident the answers."""

from __future__ import annotations

import math

import pytest
import torch

from atlas_engine.entropies import divergence, entropies, marginal_entropy
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.entropy import Entropy, ProportionalEntropy
from atlas_engine.runtime import generator


def identity(images):
    return images


def random_logits(*shape, seed=0, size=3.0):
    return size * torch.randn(shape, generator=generator(seed))


def plain_entropy(probs):
    return -(probs * probs.log()).sum(-1)


def test_entropies_run_from_zero_to_the_logarithm_of_the_classes():
    even, sure = entropies(torch.tensor([[0.0] * 5, [1e4, 0, 0, 0, 0]])).tolist()
    assert even == pytest.approx(math.log(5))
    assert sure == 0.0


@pytest.mark.parametrize("diversity", [0.0, 0.5, 1.0])
def test_the_loss_is_mean_entropy_less_the_entropy_of_the_mean(diversity):
    logits, weights = random_logits(7, 4), torch.tensor([1.0, 2.0, 0.0, 0.5, 1.0, 0.0, 3.0])
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
    logits = random_logits(6, 3).requires_grad_()
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
    logits = random_logits(1, 5).requires_grad_()
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
    logits = random_logits(5, 3)
    weights = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    wanted = marginal_entropy(logits[[0, 2, 3]])
    torch.testing.assert_close(marginal_entropy(logits, weights), wanted)


# ---- in proportion

SURE = 200 * torch.eye(3)


def proportional_loss(logits, proportions, weights=None):
    batch = Batch(torch.zeros(len(logits), 3, 2, 2), weights=weights)
    return ProportionalEntropy(torch.tensor(proportions))(lambda _images: logits, batch)


def test_sure_answers_in_their_proportions_cost_nothing_and_others_do():
    answers = SURE[[0, 0, 0, 1]]
    assert proportional_loss(answers, [0.75, 0.25, 0.0]).item() == pytest.approx(0, abs=1e-5)
    unlike = proportional_loss(answers, [0.25, 0.75, 0.0]).item()
    assert unlike == pytest.approx(0.75 * math.log(3) + 0.25 * math.log(1 / 3), abs=1e-5)


def test_a_class_that_is_not_there_is_not_invented():
    there = [0.5, 0.5, 0.0]
    assert proportional_loss(SURE[[0, 1, 0, 1]], there) < proportional_loss(SURE[[0, 1, 0, 2]], there)
    assert Entropy()(lambda _images: SURE[[0, 1, 0, 1]], Batch(torch.zeros(4, 3, 2, 2))) > Entropy()(
        lambda _images: SURE[[0, 1, 2, 1]], Batch(torch.zeros(4, 3, 2, 2))
    ), "entropy alone pays for it"


def test_with_equal_proportions_it_is_entropy_with_diversity():
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    wanted = Entropy()(lambda _images: logits, Batch(torch.zeros(8, 3, 2, 2))) + math.log(3)
    torch.testing.assert_close(proportional_loss(logits, [1 / 3] * 3), wanted)


def test_a_proportion_of_zero_has_a_finite_gradient():
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    proportional_loss(logits, [1.0, 0.0, 0.0]).backward()
    assert logits.grad.isfinite().all()


def test_images_without_weight_do_not_count_towards_the_proportions():
    logits, weights = torch.cat([SURE[[0, 1]], 9 * torch.randn(2, 3)]), torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert proportional_loss(logits, [0.5, 0.5, 0.0], weights).item() == pytest.approx(0, abs=1e-5)
    assert divergence(logits, torch.ones(3) / 3, torch.zeros(4)).item() == 0
