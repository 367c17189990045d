"""Batches split without loss, and weighted means are defined where no image counts."""

from __future__ import annotations

import torch

from atlas_engine.objectives.base import Batch, weighted_mean


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


def test_the_total_weight_is_the_sum_of_weights_or_the_count():
    assert Batch(rows()).total_weight().item() == 5.0
    assert Batch(rows(), weights=torch.tensor([1.0, 0.5, 0.0, 0.0, 0.0])).total_weight().item() == 1.5


def test_a_batch_moves_as_a_whole():
    moved = Batch(rows(), labels=torch.arange(5)).to("meta")
    assert moved.images.device.type == moved.labels.device.type == "meta"


def test_the_parts_of_a_batch_know_how_far_the_run_is():
    batch = Batch(torch.zeros(3, 2), strong=torch.zeros(3, 2), progress=0.3)
    assert [part.progress for part in batch.split(2)] == [0.3, 0.3]
    assert batch.to("meta").progress == 0.3
    assert repr(batch) == "Batch(3 images, strong)"


def test_a_weighted_mean_of_nothing_is_zero_with_a_gradient_of_zero():
    losses = torch.tensor([1.0, 2.0], requires_grad=True)
    mean = weighted_mean(losses, torch.zeros(2))
    mean.backward()
    assert mean.item() == 0.0
    assert losses.grad.tolist() == [0.0, 0.0]
