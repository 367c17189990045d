"""The linear probe ends at the minimum of its loss, whose pull is as strong as it says."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from atlas_engine.compose.encoder import cosine_logits
from atlas_engine.errors import ConfigError
from atlas_engine.heads.base import LabelledFeatures
from atlas_engine.heads.probe import Probe
from tests.heads.clouds import SCALE, evidence


@pytest.mark.parametrize("centre", ["zero", "text"])
def test_it_ends_where_the_gradient_of_its_loss_is_zero(centre):
    found, _ = evidence((4, 2, 3), spread=1.1)
    head, start = Probe.fitted(found, centre=centre), Probe.start(found, centre=centre)
    weight, bias = head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_()
    pull = (weight - start.weight).square().sum() / (2 * 10.0 * 9)
    loss = cross_entropy(found.features @ weight.T + bias, found.labels) + pull
    grads = torch.autograd.grad(loss, (weight, bias))
    assert max(grad.abs().max().item() for grad in grads) < 1e-4  # L-BFGS stops at 1e-6 or where float32 does


def test_the_text_start_is_zero_shot_and_a_strong_pull_stays_there():
    found, (features, _) = evidence((2, 2, 2))
    wanted = cosine_logits(features, found.text, logit_scale=SCALE)
    assert torch.allclose(Probe.start(found, centre="text").logits(features), wanted, atol=1e-5)
    held = Probe.fitted(found, centre="text", inverse_strength=1e-6)
    assert torch.allclose(held.weight, SCALE * found.text, atol=1e-3)


def test_more_images_loosen_the_pull():
    found, _ = evidence((3, 3, 3))
    more = LabelledFeatures(
        found.features.repeat(4, 1), found.labels.repeat(4), found.text, logit_scale=SCALE
    )
    assert Probe.fitted(more).weight.norm() > 1.2 * Probe.fitted(found).weight.norm()


def test_a_class_without_images_keeps_its_name():
    found, (features, _) = evidence((3, 1, 4))
    head = Probe.fitted(found.without(found.labels == 1), centre="text")
    assert torch.allclose(head.logits(features)[:, 1], SCALE * features @ found.text[1], atol=1e-5)


def test_an_unknown_start_offers_the_nearest():
    found, _ = evidence((2, 2))
    with pytest.raises(ConfigError, match="Did you mean 'text'"):
        Probe.start(found, centre="txt")
