"""Losses over several tasks, against those of each task alone and against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from atlas_engine.entropies import entropies
from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.multitask import Forgetting, TaskCrossEntropy, TaskEntropy, mask_other_tasks

SIZES = (2, 3)
LOGITS = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 1, 2, 3, 4])


def loss_of(objective, logits=LOGITS, **known):
    return objective(lambda images: images, Batch(logits, **{"labels": LABELS, **known}))


def test_an_image_is_judged_among_the_classes_of_its_own_task():
    found = loss_of(TaskCrossEntropy(SIZES))
    alone = [
        cross_entropy(LOGITS[:3, :2], LABELS[:3], reduction="none"),
        cross_entropy(LOGITS[3:, 2:], LABELS[3:] - 2, reduction="none"),
    ]
    assert found.item() == pytest.approx(torch.cat(alone).mean().item(), abs=1e-6)


def test_classes_of_other_tasks_have_no_gradient():
    logits = LOGITS.clone().requires_grad_()
    loss_of(TaskCrossEntropy(SIZES), logits).backward()
    assert not logits.grad[:3, 2:].any()
    assert not logits.grad[3:, :2].any()
    assert logits.grad[:3, :2].abs().min() > 0


def test_entropy_uses_the_task_of_a_label_and_nothing_else():
    found = loss_of(TaskEntropy(SIZES))
    alone = torch.cat([entropies(LOGITS[:3, :2]), entropies(LOGITS[3:, 2:])]).mean()
    assert found.item() == pytest.approx(alone.item(), abs=1e-6)
    others = torch.tensor([1, 0, 0, 4, 2, 2])
    assert torch.equal(found, loss_of(TaskEntropy(SIZES), labels=others))


def test_forgetting_is_the_control_less_the_target():
    weights = torch.tensor([1 / 3] * 6)
    target = cross_entropy(LOGITS[:3, :2], LABELS[:3])
    control = cross_entropy(LOGITS[3:, 2:], LABELS[3:] - 2)
    found = loss_of(Forgetting(SIZES, enough=math.inf), weights=weights)
    assert found.item() == pytest.approx((control - target).item() / 2, abs=1e-6)


def test_a_forgotten_image_has_no_gradient_and_is_never_classified_right():
    """Two classes: beyond a loss of ln 2 the right one has less than half of the probability."""
    logits = torch.tensor([[-1.0, 1.0, 0, 0, 0], [1.0, -1.0, 0, 0, 0]], requires_grad=True)
    labels = torch.tensor([0, 0])
    loss_of(Forgetting(SIZES, enough=1.0), logits, labels=labels).backward()
    forgotten, known = logits.grad
    assert not forgotten.any()
    assert known[0] > 0, "the one still known loses its class"
    losses = cross_entropy(logits[:, :2], labels, reduction="none")
    assert (losses > math.log(2)).tolist() == (logits[:, :2].argmax(1) != labels).tolist()


def test_the_logits_of_the_own_task_stay_as_they_are():
    found = mask_other_tasks(LOGITS, LABELS, SIZES)
    assert torch.equal(found[:3, :2], LOGITS[:3, :2])
    assert found[:3, 2:].max() < -1000


@pytest.mark.parametrize("objective", [TaskCrossEntropy(SIZES), TaskEntropy(SIZES), Forgetting(SIZES)])
def test_a_batch_that_does_not_tell_its_tasks_is_refused(objective):
    with pytest.raises(ConfigError, match="which task"):
        loss_of(objective, labels=None)
