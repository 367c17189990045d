"""Batches split without loss; cross-entropy against closed forms; the table finds what it names."""

from __future__ import annotations

import math

import pytest
import torch

from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch, weighted_mean
from atlas_engine.objectives.registry import OBJECTIVES, find_objective
from atlas_engine.objectives.supervised import CrossEntropy


def rows(count=5):
    return torch.arange(count * 2.0).reshape(count, 2)


def test_a_batch_in_parts_is_the_batch():
    batch = Batch(rows(), labels=torch.arange(5), weights=torch.rand(5), strong=-rows())
    parts = list(batch.split(2))
    assert [len(part) for part in parts] == [2, 2, 1]
    for name in ("images", "labels", "weights", "strong"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(batch, name))


def test_what_a_batch_does_not_have_its_parts_do_not_have():
    (part,) = Batch(rows()).split(9)
    assert part.labels is None
    assert part.strong is None
    assert repr(part) == "Batch(5 images)"
    assert repr(Batch(rows(), labels=torch.arange(5))) == "Batch(5 images, labels)"


def test_the_mass_is_the_sum_of_weights_or_the_count():
    assert Batch(rows()).mass().item() == 5.0
    assert Batch(rows(), weights=torch.tensor([1.0, 0.5, 0.0, 0.0, 0.0])).mass().item() == 1.5


def test_a_batch_moves_as_a_whole():
    moved = Batch(rows(), labels=torch.arange(5)).to("meta")
    assert moved.images.device.type == moved.labels.device.type == "meta"


def test_a_weighted_mean_of_nothing_is_zero_with_a_gradient_of_zero():
    losses = torch.tensor([1.0, 2.0], requires_grad=True)
    mean = weighted_mean(losses, torch.zeros(2))
    mean.backward()
    assert mean.item() == 0.0
    assert losses.grad.tolist() == [0.0, 0.0]


def test_equal_logits_cost_the_logarithm_of_the_number_of_classes():
    batch = Batch(rows(), labels=torch.tensor([0, 1, 2, 3, 0]))
    assert CrossEntropy()(lambda images: torch.zeros(len(images), 4), batch).item() == pytest.approx(
        math.log(4)
    )


def test_weights_choose_which_images_count():
    logits = torch.tensor([[0.0, 0.0], [9.0, 0.0]])
    batch = Batch(rows(2), labels=torch.tensor([0, 1]), weights=torch.tensor([2.0, 0.0]))
    assert CrossEntropy()(lambda _: logits, batch).item() == pytest.approx(math.log(2))


def test_labels_may_be_probabilities():
    logits = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    hard = CrossEntropy()(lambda _: logits, Batch(rows(2), labels=torch.tensor([0, 1])))
    soft = CrossEntropy()(lambda _: logits, Batch(rows(2), labels=torch.eye(2)))
    assert hard.item() == pytest.approx(soft.item())


def test_half_precision_logits_are_judged_in_float32():
    loss = CrossEntropy()(
        lambda _: torch.zeros(2, 3, dtype=torch.bfloat16), Batch(rows(2), torch.tensor([0, 1]))
    )
    assert loss.dtype == torch.float32


def test_cross_entropy_without_labels_says_what_is_missing():
    with pytest.raises(ConfigError, match=r"needs labels, and Batch\(5 images\) has none"):
        CrossEntropy()(lambda images: images, Batch(rows()))


def test_the_table_names_its_rows_and_offers_the_nearest():
    assert all(name == row.name and row.help for name, row in OBJECTIVES.items())
    assert find_objective("supervised").make() == CrossEntropy()
    with pytest.raises(ConfigError, match="Did you mean 'supervised'"):
        find_objective("supervized")
