"""Whom to trust: the surest of each predicted class, at least one, and nobody else."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.objectives.ufm import UNTRUSTED, trusted_labels
from atlas_engine.runtime import generator


def answers(count, classes, *, seed=0):
    return 4 * torch.randn(count, classes, generator=generator(seed))


def by_hand(logits):
    """The definition, word by word."""
    count, classes = logits.shape
    most = max(1, min(int(count / classes / 10), 100))
    confidence, predicted = logits.double().softmax(-1).max(-1)
    labels = [UNTRUSTED] * count
    for label in range(classes):
        members = [row for row in range(count) if predicted[row] == label]
        for row in sorted(members, key=lambda row: -confidence[row])[:most]:
            labels[row] = label
    return labels


@pytest.mark.parametrize(
    ("count", "classes"), [(1, 2), (5, 3), (29, 3), (60, 3), (200, 4), (230, 7), (40, 1)]
)
def test_it_is_the_definition(count, classes):
    logits = answers(count, classes, seed=count)
    assert trusted_labels(logits).tolist() == by_hand(logits)


def test_few_images_trust_one_of_each_predicted_class_and_not_everything():
    """⌊5 / 2 / 10⌋ is 0, and the last 0 of a list, `[-0:]`, is all of it."""
    logits = torch.tensor([[3.0, 0.0], [2.0, 0.0], [4.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    assert trusted_labels(logits).tolist() == [-1, -1, 0, -1, 1]


def test_only_the_chosen_are_flagged():
    """Flags taken from a whole sorted list would mark every image."""
    labels = trusted_labels(answers(400, 4))
    assert (labels != UNTRUSTED).sum() == 4 * 10
    assert labels[labels != UNTRUSTED].bincount().tolist() == [10] * 4


def test_no_class_has_more_than_a_hundred():
    labels = trusted_labels(answers(6000, 2))
    assert labels[labels != UNTRUSTED].bincount().tolist() == [100, 100]


def test_a_class_that_is_never_predicted_trusts_nothing():
    logits = answers(60, 3)
    logits[:, 1] = -50.0
    assert set(trusted_labels(logits).tolist()) == {UNTRUSTED, 0, 2}


def test_a_class_of_fewer_images_than_its_part_trusts_those():
    logits = torch.zeros(100, 2)
    logits[:, 0] = 1.0 + torch.arange(100)
    logits[7] = torch.tensor([0.0, 1.0])
    labels = trusted_labels(logits)
    assert labels[7] == 1
    assert labels[-5:].tolist() == [0] * 5
    assert (labels != UNTRUSTED).sum() == 6


def test_images_in_another_order_are_trusted_all_the_same():
    logits, order = answers(90, 3), torch.randperm(90, generator=generator(1))
    assert torch.equal(trusted_labels(logits[order]), trusted_labels(logits)[order])


def test_the_surest_is_found_where_probabilities_are_rounded_to_one():
    assert torch.tensor([90.0, 0.0]).softmax(0)[0] == torch.tensor([60.0, 0.0]).softmax(0)[0] == 1.0
    assert trusted_labels(torch.tensor([[60.0, 0.0], [90.0, 0.0]])).tolist() == [UNTRUSTED, 0]


def test_of_equal_images_the_first_is_trusted():
    assert trusted_labels(torch.ones(4, 3)).tolist() == [0, -1, -1, -1]


def test_no_images_trust_nobody():
    assert trusted_labels(torch.zeros(0, 3)).tolist() == []
