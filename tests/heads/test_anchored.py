"""Class centres without labels, on clouds whose classes are known."""

from __future__ import annotations

import torch
from torch.nn.functional import normalize

from atlas_engine.heads.base import text_logits
from atlas_engine.heads.probe import Probe
from atlas_engine.heads.unlabelled import estimate_proportions, fit_anchored_head
from atlas_engine.runtime import generator

SCALE = 20.0


def shifted(count, *, classes=5, present=5, shift=1.0, seed=0):
    """Features of a domain that lies aside of the class names, the names, and the truth."""
    draw = generator(seed)
    text = normalize(torch.randn(classes, 32, generator=draw), dim=1)
    labels = torch.arange(count) % present
    aside = shift * normalize(torch.randn(32, generator=draw), dim=0)
    noise = 0.12 * torch.randn(count, 32, generator=draw)
    bent = 0.3 * torch.randn(classes, 32, generator=draw) / 32**0.5 * 3
    return normalize(0.6 * text[labels] + aside + bent[labels] + noise, dim=1), text, labels


def right(logits, labels):
    return float((logits.argmax(dim=1) == labels).float().mean())


def test_a_shifted_domain_is_answered_better_than_by_names():
    gains = []
    for seed in range(4):
        features, text, labels = shifted(100, seed=seed)
        before = right(text_logits(features, text, logit_scale=SCALE), labels)
        gains.append(
            right(fit_anchored_head(features, text, logit_scale=SCALE).logits(features), labels) - before
        )
    assert sum(gains) > 0.1
    assert min(gains) >= 0


def test_few_of_the_classes_do_no_harm():
    for seed in range(4):
        features, text, labels = shifted(60, classes=9, present=3, shift=0.5, seed=seed)
        before = right(text_logits(features, text, logit_scale=SCALE), labels)
        assert right(fit_anchored_head(features, text, logit_scale=SCALE).logits(features), labels) >= before


def test_no_pictures_give_zero_shot():
    features, text, _ = shifted(10)
    head = fit_anchored_head(features[:0], text, logit_scale=SCALE)
    torch.testing.assert_close(head.logits(features), text_logits(features, text, logit_scale=SCALE))


def test_a_strong_anchor_lets_no_picture_move_a_class():
    features, text, _ = shifted(30)
    weights = [fit_anchored_head(features, text, logit_scale=SCALE, anchor=a).weight for a in (1e9, 1e9 + 1)]
    torch.testing.assert_close(*weights)
    domain = fit_anchored_head(features, text, logit_scale=SCALE, anchor=1e9).weight
    spread = domain - domain.mean(dim=0)
    names = text - text.mean(dim=0)
    ratio = (spread * names).sum(dim=1) / names.square().sum(dim=1)
    torch.testing.assert_close(spread, ratio[:, None] * names, atol=1e-3, rtol=1e-3)


def test_the_order_of_pictures_does_not_matter():
    features, text, _ = shifted(40)
    one = fit_anchored_head(features, text, logit_scale=SCALE)
    other = fit_anchored_head(features.flip(0), text, logit_scale=SCALE)
    torch.testing.assert_close(one.weight, other.weight, atol=1e-4, rtol=1e-4)  # sums in another order


def test_pictures_all_alike_stay_finite():
    features, text, _ = shifted(1)
    head = fit_anchored_head(features.expand(9, -1), text, logit_scale=SCALE)
    assert all(bool(tensor.isfinite().all()) for tensor in head.tensors.values())


def test_it_is_rebuilt_from_its_tensors():
    features, text, _ = shifted(20)
    head = fit_anchored_head(features, text, logit_scale=SCALE)
    again = Probe.from_tensors(head.tensors, text, logit_scale=SCALE)
    assert torch.equal(head.logits(features), again.logits(features))


def test_proportions_are_the_mean_answer_and_rounds_draw_them_apart():
    """Answers of 0.8 for three pictures in four: Σ p² / Σ p of each class, one round further."""
    logits = torch.tensor([[0.8, 0.2]] * 3 + [[0.2, 0.8]]).log()
    torch.testing.assert_close(estimate_proportions(logits), torch.tensor([0.65, 0.35]))
    first, other = 0.8 * 0.65 / (0.8 * 0.65 + 0.2 * 0.35), 0.2 * 0.65 / (0.2 * 0.65 + 0.8 * 0.35)
    wanted = torch.tensor([0.75 * first + 0.25 * other])
    torch.testing.assert_close(estimate_proportions(logits, rounds=2)[:1], wanted)
    often = [float(estimate_proportions(logits, rounds=count)[0]) for count in (1, 2, 5, 50)]
    assert often == sorted(often)
    assert abs(often[-1] - 11 / 12) < 1e-3, "where three quarters are told from 0.8 and 0.2"
