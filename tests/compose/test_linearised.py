"""The tangent of a tower: exact at zero, linear in λ, close for small λ, with the right gradient."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.compose.linearised import LinearisedEncoder
from tests.tiny import TOWERS, tiny_clip, tiny_composer, tiny_head, tiny_images, tiny_lam

LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


def pair(tower):
    visual = tiny_clip(tower).visual
    composer = tiny_composer(visual)
    return ComposedEncoder(visual, composer), LinearisedEncoder(visual, composer)


def raw(encoder, lam, images=None):
    encoder.at(lam)
    with torch.no_grad():
        return encoder.features(tiny_images() if images is None else images)


@pytest.mark.parametrize("tower", TOWERS)
def test_at_zero_the_tangent_is_the_tower(tower):
    _, linear = pair(tower)
    zero = linear.composer.initial()
    # The fused attention of the tower and the plain one of the tangent round differently.
    torch.testing.assert_close(
        raw(linear, zero), tiny_clip(tower).visual(tiny_images()).detach(), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("tower", TOWERS)
def test_features_are_linear_in_the_coefficients(tower):
    _, linear = pair(tower)
    a, b = tiny_lam(linear, seed=5), tiny_lam(linear, seed=6)
    zero = raw(linear, torch.zeros_like(a))
    mixed = raw(linear, 2.0 * a - b) - zero
    torch.testing.assert_close(
        mixed,
        2.0 * (raw(linear, a) - zero) - (raw(linear, b) - zero),
        rtol=1e-3,
        atol=1e-3 * mixed.abs().max().item(),
    )


@pytest.mark.parametrize("tower", TOWERS)
def test_the_gap_to_the_tower_shrinks_with_the_square_of_the_coefficients(tower):
    tower_encoder, linear = pair(tower)
    lam = tiny_lam(linear, size=0.1)
    gaps = [(raw(tower_encoder, s * lam) - raw(linear, s * lam)).norm().item() for s in (1.0, 0.5)]
    moved = (raw(linear, lam) - raw(linear, 0 * lam)).norm().item()
    assert 0 < gaps[0] < 0.3 * moved
    assert gaps[1] < 0.35 * gaps[0], "a quarter, but for terms of third order"


@pytest.mark.parametrize("tower", TOWERS)
def test_the_gradient_is_that_of_finite_differences(tower):
    _, linear = pair(tower)
    lam, direction = tiny_lam(linear), tiny_lam(linear, seed=8)

    def loss_at(at):
        composition = linear.at(at)
        return composition, cross_entropy(
            composition.logits(tiny_images(), tiny_head(), logit_scale=10.0), LABELS
        )

    composition, loss = loss_at(lam)
    loss.backward()
    slope = (composition.gradient() * direction).sum().item()
    step = 1e-2  # large enough for float32, and the loss is smooth
    numeric = (loss_at(lam + step * direction)[1] - loss_at(lam - step * direction)[1]).item() / (2 * step)
    assert slope == pytest.approx(numeric, rel=2e-2)


@pytest.mark.parametrize("tower", TOWERS)
def test_several_runs_at_once_are_the_same_runs_one_by_one(tower):
    _, linear = pair(tower)
    lams = tiny_lam(linear, runs=2)
    together = linear.at(lams)
    for run in (1, 0):
        together.features(tiny_images(), run=run)[:, 0].sum().backward()
    grads = together.gradient()
    for run in (0, 1):
        alone = linear.at(lams[run])
        alone.features(tiny_images())[:, 0].sum().backward()
        wanted = alone.gradient()
        torch.testing.assert_close(grads[run], wanted, rtol=1e-3, atol=1e-5 * wanted.abs().max().item())


def test_the_base_model_is_not_written():
    before = {name: tensor.clone() for name, tensor in tiny_clip().visual.state_dict().items()}
    _, linear = pair("vit")
    composition = linear.at(tiny_lam(linear))
    composition.features(tiny_images()).sum().backward()
    composition.gradient()
    assert all(torch.equal(before[name], tensor) for name, tensor in tiny_clip().visual.state_dict().items())
    assert all(p.grad is None for p in tiny_clip().visual.parameters())
