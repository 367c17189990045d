"""Fine-tuning: it learns, in three ways; it touches nothing else; and it stops where it should."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from atlas_engine.bank import TaskVector, TaskVectorBank, block_table
from atlas_engine.bank.edit import fidelity
from atlas_engine.bank.train import LabelledPixels, _chosen, _rate, fine_tune
from atlas_engine.bank.tunable import VECTOR_KINDS, apply_difference, make_tunable
from atlas_engine.errors import BankError, ConfigError
from tests.bank.lessons import QUICK, conv_tower, examples, finish, lesson, view
from tests.tiny import tiny_clip, tiny_images

TOWERS = {"conv": (conv_tower, 16), "vit": (lambda: tiny_clip("vit").visual, 32)}


def vector_of(visual, difference):
    theta0 = {name: weights.detach() for name, weights in visual.named_parameters()}
    moved = {name: weights + difference[name] for name, weights in theta0.items()}
    return TaskVector.between("colours", base=theta0, tuned=moved)


def scale_of(difference):
    return math.sqrt(sum(float(delta.detach().square().sum()) for delta in difference.values()))


@pytest.mark.parametrize("kind", VECTOR_KINDS)
@pytest.mark.parametrize("tower", TOWERS)
def test_each_kind_learns_on_each_tower(tower, kind):
    make, side = TOWERS[tower]
    taught = lesson(side=side)
    before, loss_before = taught.measure(make(), taught.val)
    made = finish(fine_tune(make(), taught, settings=replace(QUICK, kind=kind, steps=24, measure_every=24)))
    held_out = examples(40, seed=9, side=side)
    after, loss_after = taught.measure(apply_difference(make(), kind, made.difference).features, held_out)
    assert after >= max(0.6, before + 0.2)
    assert loss_after < loss_before
    assert set(made.difference) == {name for name, _ in make().named_parameters()}


def test_the_base_is_not_written_and_norm_statistics_stay():
    before = {name: tensor.clone() for name, tensor in conv_tower().state_dict().items()}
    model = make_tunable(conv_tower(), "standard", rank=4, seed=0)
    finish(fine_tune(conv_tower(), lesson(), settings=QUICK))
    assert all(torch.equal(before[name], tensor) for name, tensor in conv_tower().state_dict().items())
    assert all(parameter.grad is None for parameter in conv_tower().parameters())
    model.features(torch.randn(4, 3, 16, 16)).sum().backward()
    assert torch.equal(model.tower[1].running_mean, before["1.running_mean"])
    assert model.leaves["1.weight"].grad is not None, "affine weights of a BatchNorm do learn"


@pytest.mark.parametrize("kind", VECTOR_KINDS)
def test_the_seed_decides_every_byte(kind):
    settings = replace(QUICK, kind=kind, steps=5)
    one, same, other = (
        finish(fine_tune(conv_tower(), lesson(), settings=replace(settings, seed=seed))) for seed in (3, 3, 4)
    )
    assert all(torch.equal(one.difference[name], same.difference[name]) for name in one.difference)
    assert not torch.equal(one.difference["0.weight"], other.difference["0.weight"])


def test_decay_pulls_the_difference_not_the_weights():
    free, pulled = (
        finish(fine_tune(conv_tower(), lesson(), settings=replace(QUICK, weight_decay=decay)))
        for decay in (0.0, 60.0)
    )
    # lr · decay is up to 0.6 a step: weights themselves would be gone, of the difference the last steps stay.
    assert scale_of(pulled.difference) < 0.5 * scale_of(free.difference)
    assert scale_of(pulled.difference) < 0.2 * scale_of(dict(conv_tower().named_parameters()))


# LoRA.


def test_loras_difference_has_low_rank_and_leaves_norms_and_biases_alone():
    made = finish(fine_tune(conv_tower(), lesson(), settings=replace(QUICK, kind="lora", rank=2)))
    for block in block_table(conv_tower().named_parameters()):
        delta = made.difference[block.name]
        if block.is_matrix:
            values = torch.linalg.svdvals(delta.flatten(1))
            assert values[0] > 0, block.name
            assert values[2:].max() < 1e-5 * values[0], block.name  # what float32 rounds
        else:
            assert not delta.any(), block.name


def test_blocks_of_rank_below_loras_are_learned_whole():
    leaves = make_tunable(conv_tower(), "lora", rank=9, seed=0).leaves
    assert leaves["3.weight"].shape == (16, 1, 3, 3), "a depthwise convolution is 16 × 9"
    assert leaves["6.weight#u"].shape == (32, 9)
    assert leaves["6.weight#v"].shape == (9, 16)


def test_low_rank_storage_holds_a_lora_vector(clip):
    taught = lesson(side=32)
    taught = replace(taught, head=torch.nn.functional.normalize(torch.randn(4, 32), dim=-1))
    made = finish(fine_tune(clip.visual, taught, settings=replace(QUICK, kind="lora", rank=4, steps=3)))
    bank = TaskVectorBank.from_vectors([vector_of(clip.visual, made.difference)])
    stored = bank.stored_as("low-rank-4")
    assert stored.nbytes < 0.1 * bank.nbytes
    assert fidelity(bank, stored)["colours"].relative_error < 2e-3  # small blocks are kept in float16


# The tangent.


@pytest.mark.parametrize("tower", TOWERS)
def test_linear_features_are_linear_in_the_difference(tower):
    make, _ = TOWERS[tower]
    images = tiny_images(3)
    difference = {
        name: 0.05 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(len(name)))
        for name, weights in make().named_parameters()
    }
    with torch.no_grad():
        at = [
            apply_difference(
                make(), "linear", {name: size * delta for name, delta in difference.items()}
            ).features(images)
            for size in (0.0, 1.0, 2.0)
        ]
        torch.testing.assert_close(at[0], make()(images), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(at[2] - at[0], 2 * (at[1] - at[0]), rtol=1e-3, atol=1e-4)
    assert (at[1] - at[0]).norm() > 0.01


def test_the_gradient_of_the_tangent_is_that_of_finite_differences():
    images = tiny_images(3)
    start = {name: 0.05 * torch.ones_like(weights) for name, weights in conv_tower().named_parameters()}
    way = {name: torch.cos(torch.arange(w.numel()).float()).view(w.shape) for name, w in start.items()}

    def value(model):
        return model.features(images).square().sum()

    model = apply_difference(conv_tower(), "linear", start)
    value(model).backward()
    slope = sum(float((leaf.grad * way[name]).sum()) for name, leaf in model.leaves.items())
    step = 1e-3  # the value is a parabola along the way: central differences are exact but for rounding
    ends = [
        value(
            apply_difference(
                conv_tower(), "linear", {name: start[name] + sign * step * way[name] for name in start}
            )
        ).detach()
        for sign in (1, -1)
    ]
    assert slope == pytest.approx((ends[0] - ends[1]).item() / (2 * step), rel=1e-2)


# When it stops, and what it keeps.


def test_the_best_difference_is_kept_and_patience_ends_a_run_that_no_longer_gains():
    taught = lesson()
    hopeless = LabelledPixels(
        taught.val.pixels, torch.zeros_like(taught.val.labels)
    )  # learning makes these wrong
    taught = replace(taught, val=hopeless)
    steps, seen = fine_tune(conv_tower(), taught, settings=replace(QUICK, steps=60, patience=2)), []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as end:
            made = end.value
            break
    measured = {step.index: step.val_accuracy for step in seen if step.val_accuracy is not None}
    assert made.steps == len(seen) < 60
    assert made.val_accuracy == max(measured.values())
    assert measured[made.best_step] == made.val_accuracy
    assert list(measured) == list(range(4, made.steps + 1, 4))
    assert made.steps == made.best_step + 2 * 4
    again, _ = taught.measure(apply_difference(conv_tower(), "standard", made.difference).features, hopeless)
    assert again == made.val_accuracy


def test_without_a_validation_split_the_last_difference_stands():
    made = finish(fine_tune(conv_tower(), lesson(val=0), settings=QUICK))
    assert (made.best_step, made.steps, made.val_accuracy) == (12, 12, None)


def test_the_last_steps_tell_no_time_left():
    steps = list(fine_tune(conv_tower(), lesson(), settings=replace(QUICK, steps=3)))
    assert [step.index for step in steps] == [1, 2, 3]
    assert steps[0].seconds_left > 0 == steps[-1].seconds_left


def test_a_run_that_diverges_says_so():
    broken = replace(lesson(), logit_scale=math.inf)
    with pytest.raises(BankError, match=r"diverged: its loss at step 1 is nan\. Lower lr"):
        next(fine_tune(conv_tower(), broken, settings=QUICK))


def test_the_rate_climbs_to_its_peak_and_falls_to_nothing():
    rates = [_rate(index, replace(QUICK, steps=10, warm_up=4, lr=1.0)) for index in range(10)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[7] == pytest.approx(0.5)
    assert 0 < rates[9] < 0.1
    assert _rate(0, replace(QUICK, steps=1, lr=1.0)) == 1.0


@pytest.mark.parametrize("count", [5, 8, 30])
def test_every_image_comes_once_before_any_comes_again(count):
    drawn = torch.cat([_chosen(count, index, QUICK) for index in range(15)])
    for turn in drawn[: len(drawn) // count * count].view(-1, count):
        assert sorted(turn.tolist()) == list(range(count))
    assert not torch.equal(drawn[:count], drawn[count : 2 * count])


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match="Did you mean 'lora'"):
        replace(QUICK, kind="lorra")


def test_views_are_random_only_while_learning():
    pixels = examples(4, seed=0).pixels
    assert torch.equal(view(pixels, None), view(pixels, None))
