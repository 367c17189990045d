"""Sure answers that use every class, on clouds whose classes are known."""

from __future__ import annotations

import torch
from torch.nn.functional import normalize

from atlas_engine.entropies import entropies, marginal_entropy
from atlas_engine.heads.probe import Probe
from atlas_engine.heads.unlabelled import STRENGTH, fit_balanced_head
from atlas_engine.runtime import generator

SCALE = 20.0


def clouds(count, *, classes=4, seed=0):
    """Features in tight clouds, names that lean to the first class, and the truth."""
    draw = generator(seed)
    centres = normalize(torch.randn(classes, 24, generator=draw), dim=1)
    labels = torch.arange(count) % classes
    features = normalize(centres[labels] + 0.08 * torch.randn(count, 24, generator=draw), dim=1)
    names = normalize(0.15 * centres + centres[:1] + 0.05 * torch.randn(classes, 24, generator=draw), dim=1)
    return features, Probe(SCALE * names, torch.zeros(classes)), labels


def right(head, features, labels):
    return float((head.logits(features).argmax(dim=1) == labels).float().mean())


def test_clouds_that_names_cannot_tell_apart_are_told_apart():
    for seed in range(3):
        features, start, labels = clouds(40, seed=seed)
        before = right(start, features, labels)
        after = right(fit_balanced_head(features, start, logit_scale=SCALE), features, labels)
        assert after > max(before, 0.9)


def test_what_is_found_is_no_worse_than_the_start_by_its_own_measure():
    features, start, _ = clouds(40)
    head = fit_balanced_head(features, start, logit_scale=SCALE)

    def loss(probe):
        logits = probe.logits(features)
        pull = (probe.weight - start.weight).square().sum() / (2 * STRENGTH * SCALE**2 * len(features))
        return float(entropies(logits).mean() - marginal_entropy(logits) + pull)

    assert loss(head) < loss(start) - 0.1
    draw = generator(1)
    for _ in range(8):
        aside = 0.02 * torch.randn(head.weight.shape, generator=draw)
        assert loss(head) <= loss(Probe(head.weight + aside, head.bias)) + 1e-4


def test_no_pictures_change_nothing_and_the_same_pictures_give_the_same_head():
    features, start, _ = clouds(20)
    assert fit_balanced_head(features[:0], start, logit_scale=SCALE) is start
    one, other = (fit_balanced_head(features, start, logit_scale=SCALE) for _ in range(2))
    assert torch.equal(one.weight, other.weight)
    with torch.inference_mode():
        assert torch.equal(fit_balanced_head(features.clone(), start, logit_scale=SCALE).weight, one.weight)


def test_classes_are_used_in_the_proportions_given():
    features, start, labels = clouds(40)
    some = features[labels < 2]  # of four classes the first two are there
    there = torch.tensor([0.49, 0.49, 0.01, 0.01])
    alike, counted = (
        fit_balanced_head(some, start, logit_scale=SCALE, proportions=given)
        .logits(some)
        .argmax(dim=1)
        .unique()
        for given in (None, there)
    )
    assert len(alike) > 2
    assert counted.tolist() == [0, 1]


def test_equal_proportions_are_what_is_taken_where_none_are_given():
    features, start, _ = clouds(20)
    one, other = (
        fit_balanced_head(features, start, logit_scale=SCALE, proportions=given)
        for given in (None, torch.full((4,), 0.25))
    )
    assert torch.equal(one.weight, other.weight)
