"""Fine-tuning: every kind learns, the base is not written, and a run stops where it should."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from atlas_engine.bank.train import LabelledPixels, _batch_indices, _learning_rate, fine_tune
from atlas_engine.bank.tunable import apply_difference, make_tunable
from atlas_engine.bank.vector import VECTOR_KINDS
from atlas_engine.errors import BankError, ConfigError
from atlas_engine.runtime import drain
from tests.bank.training_tasks import QUICK, conv_tower, examples, training_task, view
from tests.tiny import tiny_clip

TOWERS = {"conv": (conv_tower, 16), "vit": (lambda: tiny_clip("vit").visual, 32)}


def scale_of(difference):
    return math.sqrt(sum(float(delta.detach().square().sum()) for delta in difference.values()))


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@pytest.mark.parametrize("tower", TOWERS)
def test_each_kind_learns_on_each_tower(tower, kind):
    make, side = TOWERS[tower]
    task = training_task(side=side)
    before, loss_before = task.measure(make(), task.val)
    tuned = drain(fine_tune(make(), task, settings=replace(QUICK, kind=kind, steps=24, measure_every=24)))
    held_out = examples(40, seed=9, side=side)
    after, loss_after = task.measure(apply_difference(make(), kind, tuned.difference).features, held_out)
    assert after >= max(0.6, before + 0.2)
    assert loss_after < loss_before
    assert set(tuned.difference) == {name for name, _ in make().named_parameters()}


def test_the_base_is_not_written_and_norm_statistics_stay():
    before = {name: tensor.clone() for name, tensor in conv_tower().state_dict().items()}
    model = make_tunable(conv_tower(), "standard", rank=4, seed=0)
    drain(fine_tune(conv_tower(), training_task(), settings=QUICK))
    assert all(torch.equal(before[name], tensor) for name, tensor in conv_tower().state_dict().items())
    assert all(parameter.grad is None for parameter in conv_tower().parameters())
    model.features(torch.randn(4, 3, 16, 16)).sum().backward()
    assert torch.equal(model.tower[1].running_mean, before["1.running_mean"])
    assert model.leaves["1.weight"].grad is not None, "affine weights of a BatchNorm do learn"


@pytest.mark.parametrize("kind", VECTOR_KINDS)
def test_the_seed_decides_every_byte(kind):
    settings = replace(QUICK, kind=kind, steps=5)
    one, same, other = (
        drain(fine_tune(conv_tower(), training_task(), settings=replace(settings, seed=seed)))
        for seed in (3, 3, 4)
    )
    assert all(torch.equal(one.difference[name], same.difference[name]) for name in one.difference)
    assert not torch.equal(one.difference["0.weight"], other.difference["0.weight"])


def test_decay_pulls_the_difference_not_the_weights():
    free, pulled = (
        drain(fine_tune(conv_tower(), training_task(), settings=replace(QUICK, weight_decay=decay)))
        for decay in (0.0, 60.0)
    )
    # lr · decay is up to 0.6 a step: weights themselves would be gone, of the difference the last steps stay.
    assert scale_of(pulled.difference) < 0.5 * scale_of(free.difference)
    assert scale_of(pulled.difference) < 0.2 * scale_of(dict(conv_tower().named_parameters()))


def test_the_best_difference_is_kept_and_patience_ends_a_run_that_no_longer_gains():
    task = training_task()
    hopeless = LabelledPixels(
        task.val.pixels, torch.zeros_like(task.val.labels)
    )  # learning makes these wrong
    task = replace(task, val=hopeless)
    steps, seen = fine_tune(conv_tower(), task, settings=replace(QUICK, steps=60, patience=2)), []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as end:
            tuned = end.value
            break
    measured = {step.index: step.val_accuracy for step in seen if step.val_accuracy is not None}
    assert tuned.steps == len(seen) < 60
    assert tuned.val_accuracy == max(measured.values())
    assert measured[tuned.best_step] == tuned.val_accuracy
    assert list(measured) == list(range(4, tuned.steps + 1, 4))
    assert tuned.steps == tuned.best_step + 2 * 4
    again, _ = task.measure(apply_difference(conv_tower(), "standard", tuned.difference).features, hopeless)
    assert again == tuned.val_accuracy


def test_without_a_validation_split_the_last_difference_stands():
    tuned = drain(fine_tune(conv_tower(), training_task(val=0), settings=QUICK))
    assert (tuned.best_step, tuned.steps, tuned.val_accuracy) == (12, 12, None)


def test_the_last_step_has_no_seconds_left():
    steps = list(fine_tune(conv_tower(), training_task(), settings=replace(QUICK, steps=3)))
    assert [step.index for step in steps] == [1, 2, 3]
    assert steps[0].seconds_left > 0 == steps[-1].seconds_left


def test_a_run_that_diverges_says_so():
    broken = replace(training_task(), logit_scale=math.inf)
    with pytest.raises(BankError, match=r"diverged: its loss at step 1 is nan\. Lower lr"):
        next(fine_tune(conv_tower(), broken, settings=QUICK))


def test_the_learning_rate_climbs_to_its_peak_and_falls_to_zero():
    rates = [_learning_rate(index, replace(QUICK, steps=10, warm_up=4, lr=1.0)) for index in range(10)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[7] == pytest.approx(0.5)
    assert 0 < rates[9] < 0.1
    assert _learning_rate(0, replace(QUICK, steps=1, lr=1.0)) == 1.0


@pytest.mark.parametrize("count", [5, 8, 30])
def test_every_image_comes_once_before_any_comes_again(count):
    drawn = torch.cat([_batch_indices(count, index, QUICK) for index in range(15)])
    for turn in drawn[: len(drawn) // count * count].view(-1, count):
        assert sorted(turn.tolist()) == list(range(count))
    assert not torch.equal(drawn[:count], drawn[count : 2 * count])


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match="Did you mean 'lora'"):
        replace(QUICK, kind="lorra")


def test_views_are_random_only_while_learning():
    pixels = examples(4, seed=0).pixels
    assert torch.equal(view(pixels, None), view(pixels, None))
