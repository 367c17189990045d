"""The linear probe ends at the minimum of its loss, whose pull is as strong as it says."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from atlas_engine.compose.encoder import cosine_logits
from atlas_engine.errors import ConfigError
from atlas_engine.heads.base import UNUSED, LabelledFeatures
from atlas_engine.heads.probe import Probe
from tests.heads.synthetic import SCALE, accuracy, make_support, take_rows


@pytest.mark.parametrize("prior", ["zero", "text"])
def test_it_ends_where_the_gradient_of_its_loss_is_zero(prior):
    support, _ = make_support((4, 2, 3), spread=1.1)
    head, start = Probe.fit(support, prior=prior), Probe.start(support, prior=prior)
    weight, bias = head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_()
    pull = (weight - start.weight).square().sum() / (2 * 10.0 * 9)
    loss = cross_entropy(support.features @ weight.T + bias, support.labels) + pull
    grads = torch.autograd.grad(loss, (weight, bias))
    assert max(grad.abs().max().item() for grad in grads) < 1e-4  # L-BFGS stops at 1e-6 or where float32 does


def test_the_text_prior_is_zero_shot_and_a_strong_pull_stays_there():
    support, (features, _) = make_support((2, 2, 2))
    wanted = cosine_logits(features, support.text, logit_scale=SCALE)
    assert torch.allclose(Probe.start(support, prior="text").logits(features), wanted, atol=1e-5)
    held = Probe.fit(support, prior="text", inverse_strength=1e-6)
    assert torch.allclose(held.weight, SCALE * support.text, atol=1e-3)


def at_another_scale(support, tests, logit_scale):
    """The same problem at another logit scale: names that lean into a direction in which no image lies.

    The cosine of a name and an image becomes SCALE / logit_scale times as large, so that zero-shot logits
    stay, and so does all that logits can say about the images.
    """
    ratio = SCALE / logit_scale
    lean = torch.full((len(support.text), 1), (1.0 - ratio**2) ** 0.5)
    text = torch.cat([ratio * support.text, lean], dim=1)
    features, tested = (torch.nn.functional.pad(one, (0, 1)) for one in (support.features, tests))
    return LabelledFeatures(features, support.labels, text, logit_scale=logit_scale), tested


@pytest.mark.parametrize("logit_scale", [50.0, 100.0])
def test_the_names_pull_as_much_at_any_logit_scale(logit_scale):
    support, (tests, _) = make_support((4, 2, 3), spread=1.1)
    other, same_tests = at_another_scale(support, tests, logit_scale)
    zero_shot = [Probe.start(one, prior="text") for one in (support, other)]
    torch.testing.assert_close(zero_shot[0].logits(tests), zero_shot[1].logits(same_tests), atol=1e-4, rtol=0)
    wanted = Probe.fit_from_text(support).logits(tests)
    found = Probe.fit_from_text(other).logits(same_tests)
    assert (wanted - zero_shot[0].logits(tests)).abs().max() > 1.0, "the images have moved the head"
    torch.testing.assert_close(found, wanted, atol=0.02, rtol=0)  # where L-BFGS stops in float32


def test_two_images_move_the_names_by_the_closed_form_at_any_logit_scale():
    """Images f₁ and f₂ of two classes, orthogonal to both names, and c so small that answers stay at ½.

    ∂CE/∂V₁ is then (f₂ − f₁) / 4, that of the pull ΔV₁ / 2c, and ΔV₁ = −ΔV₂ = c (f₁ − f₂) / 2 at the minimum.
    """
    f1, f2, *names = torch.eye(4)
    for logit_scale in (20.0, 100.0):
        labels = torch.tensor([0, 1])
        support = LabelledFeatures(torch.stack([f1, f2]), labels, torch.stack(names), logit_scale=logit_scale)
        moved = Probe.fit(support, prior="text", inverse_strength=1e-2).weight - logit_scale * support.text
        wanted = 0.5e-2 * torch.stack([f1 - f2, f2 - f1])
        torch.testing.assert_close(moved, wanted, atol=1e-4, rtol=0)  # answers leave ½ by a hundredth


def test_more_images_loosen_the_pull():
    support, _ = make_support((3, 3, 3))
    more = take_rows(support, torch.arange(9).repeat(4))
    assert Probe.fit(more).weight.norm() > 1.2 * Probe.fit(support).weight.norm()


def test_a_class_without_images_keeps_its_name():
    support, (features, _) = make_support((3, 1, 4))
    head = Probe.fit(support.without(support.labels == 1), prior="text")
    assert torch.allclose(head.logits(features)[:, 1], SCALE * features @ support.text[1], atol=1e-5)


def test_a_widened_probe_gives_the_same_logits_on_wider_features():
    support, (features, _) = make_support((2, 2, 2))
    head = Probe.fit(support)
    wider = torch.cat([features / 3.0, torch.ones(len(features), 5)], dim=1)
    assert torch.allclose(head.widened(29, factor=3.0).logits(wider), head.logits(features), atol=1e-5)


def test_an_unknown_prior_offers_the_nearest():
    support, _ = make_support((2, 2))
    with pytest.raises(ConfigError, match="Did you mean 'text'"):
        Probe.start(support, prior="txt")


def halves_of_a_support():
    """Two halves of a support that no head gets all right, and test images."""
    support, tests = make_support((12, 12, 12), spread=1.6, text_noise=2.0)
    second = torch.arange(36) % 2 == 1
    return support.without(second), support.without(~second), tests


def test_a_probe_that_learns_on_keeps_the_rows_of_classes_without_new_images():
    first, second, tests = halves_of_a_support()
    before = Probe.fit_from_text(first)
    more = second.with_labels(torch.where(second.labels == 2, UNUSED, second.labels))
    after = before.fit_further(more, images_before=18)
    assert torch.equal(after.weight[2], before.weight[2])
    assert torch.equal(after.bias[2], before.bias[2])
    assert not torch.equal(after.weight[0], before.weight[0])
    assert accuracy(before.fit_further(second, images_before=18), tests) >= accuracy(before, tests)


def test_images_of_one_class_alone_do_not_raise_its_bias_without_end():
    first, second, (features, _) = halves_of_a_support()
    before = Probe.fit_from_text(first)
    only = second.with_labels(torch.where(second.labels == 1, 1, UNUSED))
    after = before.fit_further(only, images_before=18)
    assert 0 < float((after.bias - before.bias).abs().max()) < 5
    assert set(after.logits(features).argmax(dim=1).tolist()) == {0, 1, 2}


def test_the_more_images_made_a_probe_the_less_new_ones_move_it():
    first, second, _ = halves_of_a_support()
    before = Probe.fit_from_text(first)
    few, many = (
        float((before.fit_further(second, images_before=count).weight - before.weight).norm())
        for count in (0, 100_000)
    )
    assert 0 < many < few / 2
