"""Cross-entropy against closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.supervised import CrossEntropy


def test_equal_logits_cost_the_logarithm_of_the_number_of_classes():
    batch = Batch(torch.zeros(5, 2), labels=torch.tensor([0, 1, 2, 3, 0]))
    loss = CrossEntropy()(lambda images: torch.zeros(len(images), 4), batch)
    assert loss.item() == pytest.approx(math.log(4))


def test_weights_choose_which_images_count():
    logits = torch.tensor([[0.0, 0.0], [9.0, 0.0]])
    batch = Batch(torch.zeros(2, 2), labels=torch.tensor([0, 1]), weights=torch.tensor([2.0, 0.0]))
    assert CrossEntropy()(lambda _: logits, batch).item() == pytest.approx(math.log(2))


def test_labels_may_be_probabilities():
    logits = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    hard = CrossEntropy()(lambda _: logits, Batch(torch.zeros(2, 2), labels=torch.tensor([0, 1])))
    soft = CrossEntropy()(lambda _: logits, Batch(torch.zeros(2, 2), labels=torch.eye(2)))
    assert hard.item() == pytest.approx(soft.item())


def test_half_precision_logits_are_judged_in_float32():
    batch = Batch(torch.zeros(2, 2), labels=torch.tensor([0, 1]))
    loss = CrossEntropy()(lambda _: torch.zeros(2, 3, dtype=torch.bfloat16), batch)
    assert loss.dtype == torch.float32


def test_cross_entropy_without_labels_says_what_is_missing():
    with pytest.raises(ConfigError, match=r"needs labels, and Batch\(5 images\) has none"):
        CrossEntropy()(lambda images: images, Batch(torch.zeros(5, 2)))
