"""Tip-Adapter: closed forms against the real thing, fair votes, and a search that needs no validation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from atlas_engine.compose.encoder import cosine_logits
from atlas_engine.errors import RecipeError
from atlas_engine.heads.base import UNUSED, LabelledFeatures, text_logits
from atlas_engine.heads.tip import Tip, _affinity, _leave_one_out_votes
from tests.heads.synthetic import SCALE, accuracy, make_support, take_rows


def leave_one_out_logits(support, *, alpha, beta):
    """(N C): each image under the cache of all others, by the closed form that the search uses."""
    every = torch.arange(len(support.labels))
    affinity = _affinity(support.features @ support.features.T, beta)
    votes = _leave_one_out_votes(affinity, support, every, support.used)
    return text_logits(support.features, support.text, logit_scale=support.logit_scale) + alpha * votes


def test_without_alpha_it_is_zero_shot_to_the_bit():
    support, (features, _) = make_support()
    head = Tip.start(support, alpha=0.0)
    assert torch.equal(head.logits(features), cosine_logits(features, support.text, logit_scale=SCALE))


def test_equal_counts_give_the_papers_formula():
    support, (features, _) = make_support((3, 3, 3))
    affinity = torch.exp(-5.5 * (1.0 - features @ support.features.T))
    wanted = SCALE * features @ support.text.T + 1.5 * affinity @ one_hot(support.labels).float()
    logits = Tip.start(support, alpha=1.5, beta=5.5).logits(features)
    assert torch.allclose(logits, wanted, atol=1e-5)  # sums of ten float32 numbers near 10


def test_a_class_with_more_keys_does_not_weigh_more():
    """Each image of a class four times over is the same class, seen no better."""
    support, (features, _) = make_support((2, 2, 2))
    more = take_rows(support, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 5]))
    zero_shot = SCALE * features @ support.text.T
    few, many = (Tip.start(one, alpha=1.0).logits(features) - zero_shot for one in (support, more))
    assert torch.allclose(many, few * (4.0 / 2.0), atol=1e-4), "all votes grow alike, by the mean count"


@pytest.mark.parametrize("counts", [(4, 4, 4), (5, 1, 2, 3), (1, 1), (2, 1)])
def test_leaving_out_by_formula_is_really_leaving_out(counts):
    support, _ = make_support(counts)
    logits = leave_one_out_logits(support, alpha=2.0, beta=3.0)
    for row in range(len(support.labels)):
        rest = take_rows(support, torch.arange(len(support.labels)) != row)
        wanted = Tip.start(rest, alpha=2.0, beta=3.0).logits(support.features[row : row + 1])
        assert torch.allclose(logits[row : row + 1], wanted, atol=1e-5)


def test_an_unused_key_has_no_vote():
    support, (features, _) = make_support((3, 2, 2))
    used = torch.arange(7) != 4
    rest = take_rows(support, used)
    fold = support.without(~used)
    assert Tip.start(fold).tensors["keys"].shape == (7, 24), "the folds of one support have one shape"
    for make in (Tip.start, Tip.grid_search, Tip.fit):
        assert torch.allclose(make(fold).logits(features), make(rest).logits(features), atol=1e-4)


def test_the_search_finds_the_most_images_right_when_each_is_left_out():
    support, _ = make_support((6, 6, 6), spread=1.1, text_noise=3.0)
    head = Tip.grid_search(support)

    def right(alpha, beta):
        logits = leave_one_out_logits(support, alpha=alpha, beta=beta)
        return int((logits.argmax(dim=1) == support.labels).sum())

    best = right(float(head.root_alpha) ** 2, float(head.root_beta) ** 2)
    assert best >= max(right(alpha, beta) for alpha in (0.0, 0.5, 2.0, 8.0, 32.0) for beta in (0.5, 2.0, 8.0))
    assert best > right(0.0, 1.0)


def test_a_cache_that_only_misleads_is_switched_off():
    """Names that are always right, and images labelled at random."""
    support, tests = make_support((8, 8, 8, 8), text_noise=0.0)
    shuffled = support.features[torch.randperm(32, generator=torch.Generator().manual_seed(6))]
    head = Tip.grid_search(LabelledFeatures(shuffled, support.labels, support.text, logit_scale=SCALE))
    assert accuracy(head, tests) > 0.9


def test_images_that_are_the_only_ones_of_their_class_leave_alpha_and_beta_at_their_start():
    support, _ = make_support((1, 1, 1))
    head = Tip.grid_search(support)
    assert float(head.root_alpha) ** 2 == pytest.approx(2.0)
    assert float(head.root_beta) ** 2 == pytest.approx(1.0)


def test_training_moves_keys_and_sharpness_and_lowers_the_leave_one_out_loss():
    support, _ = make_support((4, 4, 4), spread=1.5, text_noise=3.0, dim=6)
    before, after = Tip.grid_search(support), Tip.fit(support)
    for name in ("keys", "root_alpha", "root_beta"):
        assert not torch.equal(after.tensors[name], before.tensors[name]), name
        assert not after.tensors[name].requires_grad

    def loss(head):
        """Each image under the trained keys of all others."""
        logits = []
        for row in range(len(support.labels)):
            others = support.without(torch.tensor([row])).labels
            logits.append(replace(head, labels=others).logits(support.features[row : row + 1]))
        return cross_entropy(torch.cat(logits), support.labels).item()

    assert loss(after) < loss(before)


def test_labels_that_are_no_classes_are_refused():
    support, _ = make_support((2, 2))
    tensors = dict(Tip.start(support).tensors)
    for labels in ([0.0, 1.0, 2.0, 0.0], [0.5, 1.0, 0.0, 0.0], [-2.0, 0.0, 1.0, 1.0]):
        with pytest.raises(RecipeError, match="not class numbers from 0 to 1"):
            Tip.from_tensors(tensors | {"labels": torch.tensor(labels)}, support.text, logit_scale=SCALE)
    folded = Tip.start(support.without(torch.tensor([0]))).tensors
    assert Tip.from_tensors(folded, support.text, logit_scale=SCALE).labels.tolist() == [UNUSED, 0, 1, 1]


def test_alpha_and_beta_stay_positive_whatever_is_learned():
    support, (features, _) = make_support((2, 2))
    head = Tip.start(support)
    mirrored = head.at({"root_alpha": -head.root_alpha, "root_beta": -head.root_beta})
    assert torch.equal(mirrored.logits(features), head.logits(features))
    assert math.isclose(float(head.root_alpha) ** 2, 2.0, rel_tol=1e-6)
