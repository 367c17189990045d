"""Heads without labels, on features whose classes are known."""

from __future__ import annotations

import torch
from torch.nn.functional import normalize

from atlas_engine.entropies import entropies, marginal_entropy
from atlas_engine.heads.base import ZeroShot, text_logits
from atlas_engine.heads.probe import Probe
from atlas_engine.heads.unlabelled import (
    BALANCED_INVERSE_STRENGTH,
    estimate_proportions,
    fit_anchored_head,
    fit_balanced_head,
)
from atlas_engine.runtime import generator
from tests.heads.synthetic import SCALE, accuracy

# ---- the anchored head


def make_shifted_domain(count, *, classes=5, present=5, shift=1.0, seed=0):
    """Features of a domain that lies beside its class names, the embeddings of the names, and the labels."""
    draw = generator(seed)
    text = normalize(torch.randn(classes, 32, generator=draw), dim=1)
    labels = torch.arange(count) % present
    domain = shift * normalize(torch.randn(32, generator=draw), dim=0)
    noise = 0.12 * torch.randn(count, 32, generator=draw)
    class_offsets = 0.3 * torch.randn(classes, 32, generator=draw) / 32**0.5 * 3
    return normalize(0.6 * text[labels] + domain + class_offsets[labels] + noise, dim=1), text, labels


def test_a_shifted_domain_is_answered_better_than_by_names():
    gains = []
    for seed in range(4):
        features, text, labels = make_shifted_domain(100, seed=seed)
        before = accuracy(ZeroShot(text, SCALE), (features, labels))
        gains.append(
            accuracy(fit_anchored_head(features, text, logit_scale=SCALE), (features, labels)) - before
        )
    assert sum(gains) > 0.1
    assert min(gains) >= 0


def test_few_of_the_classes_do_no_harm():
    for seed in range(4):
        features, text, labels = make_shifted_domain(60, classes=9, present=3, shift=0.5, seed=seed)
        before = accuracy(ZeroShot(text, SCALE), (features, labels))
        head = fit_anchored_head(features, text, logit_scale=SCALE)
        assert accuracy(head, (features, labels)) >= before


def test_no_images_give_zero_shot():
    features, text, _ = make_shifted_domain(10)
    head = fit_anchored_head(features[:0], text, logit_scale=SCALE)
    torch.testing.assert_close(head.logits(features), text_logits(features, text, logit_scale=SCALE))


def test_a_strong_anchor_lets_no_image_move_a_class():
    features, text, _ = make_shifted_domain(30)
    weights = [fit_anchored_head(features, text, logit_scale=SCALE, anchor=a).weight for a in (1e9, 1e9 + 1)]
    torch.testing.assert_close(*weights)
    centred_weight = weights[0] - weights[0].mean(dim=0)
    centred_text = text - text.mean(dim=0)
    ratio = (centred_weight * centred_text).sum(dim=1) / centred_text.square().sum(dim=1)
    torch.testing.assert_close(centred_weight, ratio[:, None] * centred_text, atol=1e-3, rtol=1e-3)


def test_the_order_of_images_does_not_matter():
    features, text, _ = make_shifted_domain(40)
    one = fit_anchored_head(features, text, logit_scale=SCALE)
    other = fit_anchored_head(features.flip(0), text, logit_scale=SCALE)
    torch.testing.assert_close(one.weight, other.weight, atol=1e-4, rtol=1e-4)  # sums in another order


def test_images_all_alike_stay_finite():
    features, text, _ = make_shifted_domain(1)
    head = fit_anchored_head(features.expand(9, -1), text, logit_scale=SCALE)
    assert all(bool(tensor.isfinite().all()) for tensor in head.tensors.values())


def test_it_is_rebuilt_from_its_tensors():
    features, text, _ = make_shifted_domain(20)
    head = fit_anchored_head(features, text, logit_scale=SCALE)
    again = Probe.from_tensors(head.tensors, text, logit_scale=SCALE)
    assert torch.equal(head.logits(features), again.logits(features))


def test_proportions_are_the_mean_answer_and_rounds_draw_them_apart():
    """Answers of 0.8 for three images in four: Σ p² / Σ p of each class, one round further."""
    logits = torch.tensor([[0.8, 0.2]] * 3 + [[0.2, 0.8]]).log()
    torch.testing.assert_close(estimate_proportions(logits), torch.tensor([0.65, 0.35]))
    first, other = 0.8 * 0.65 / (0.8 * 0.65 + 0.2 * 0.35), 0.2 * 0.65 / (0.2 * 0.65 + 0.8 * 0.35)
    wanted = torch.tensor([0.75 * first + 0.25 * other])
    torch.testing.assert_close(estimate_proportions(logits, rounds=2)[:1], wanted)
    often = [float(estimate_proportions(logits, rounds=count)[0]) for count in (1, 2, 5, 50)]
    assert often == sorted(often)
    assert abs(often[-1] - 11 / 12) < 1e-3, "the fixed point of three quarters seen through 0.8 and 0.2"


# ---- the balanced head


def make_tight_classes(count, *, classes=4, seed=0):
    """Features close to their class centres, a head of names that lean to the first class, and the labels."""
    draw = generator(seed)
    centres = normalize(torch.randn(classes, 24, generator=draw), dim=1)
    labels = torch.arange(count) % classes
    features = normalize(centres[labels] + 0.08 * torch.randn(count, 24, generator=draw), dim=1)
    names = normalize(0.15 * centres + centres[:1] + 0.05 * torch.randn(classes, 24, generator=draw), dim=1)
    return features, Probe(SCALE * names, torch.zeros(classes)), labels


def test_classes_that_names_confuse_are_told_apart():
    for seed in range(3):
        features, start, labels = make_tight_classes(40, seed=seed)
        head = fit_balanced_head(features, start)
        assert accuracy(head, (features, labels)) > max(accuracy(start, (features, labels)), 0.9)


def test_the_fitted_head_has_a_smaller_loss_than_the_start_and_than_its_neighbours():
    features, start, _ = make_tight_classes(40)
    head = fit_balanced_head(features, start)

    def loss(probe):
        logits = probe.logits(features)
        change = probe.weight - start.weight
        pull = change.square().sum() / (2 * BALANCED_INVERSE_STRENGTH * len(features))
        return float(entropies(logits).mean() - marginal_entropy(logits) + pull)

    assert loss(head) < loss(start) - 0.1
    draw = generator(1)
    for _ in range(8):
        nearby = head.weight + 0.02 * torch.randn(head.weight.shape, generator=draw)
        assert loss(head) <= loss(Probe(nearby, head.bias)) + 1e-4


def test_no_images_change_nothing_and_the_same_images_give_the_same_head():
    features, start, _ = make_tight_classes(20)
    assert fit_balanced_head(features[:0], start) is start
    one, other = (fit_balanced_head(features, start) for _ in range(2))
    assert torch.equal(one.weight, other.weight)
    with torch.inference_mode():
        assert torch.equal(fit_balanced_head(features.clone(), start).weight, one.weight)


def test_classes_are_used_in_the_proportions_given():
    features, start, labels = make_tight_classes(40)
    some = features[labels < 2]  # of four classes the first two are there
    there = torch.tensor([0.49, 0.49, 0.01, 0.01])
    with_equal, with_given = (
        fit_balanced_head(some, start, proportions=proportions).logits(some).argmax(dim=1).unique()
        for proportions in (None, there)
    )
    assert len(with_equal) > 2
    assert with_given.tolist() == [0, 1]


def test_equal_proportions_are_the_default():
    features, start, _ = make_tight_classes(20)
    one, other = (
        fit_balanced_head(features, start, proportions=proportions)
        for proportions in (None, torch.full((4,), 0.25))
    )
    assert torch.equal(one.weight, other.weight)
