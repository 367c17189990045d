"""Towers that can be fine-tuned: what each kind learns, and the tangent's gradient."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from atlas_engine.bank import TaskVector, TaskVectorBank, block_table
from atlas_engine.bank.edit import fidelity
from atlas_engine.bank.train import fine_tune
from atlas_engine.bank.tunable import apply_difference, make_tunable
from atlas_engine.runtime import drain
from tests.bank.training_tasks import QUICK, conv_tower, training_task
from tests.tiny import tiny_clip, tiny_images

TOWERS = {"conv": conv_tower, "vit": lambda: tiny_clip("vit").visual}


def vector_of(visual, difference):
    theta0 = {name: weights.detach() for name, weights in visual.named_parameters()}
    moved = {name: weights + difference[name] for name, weights in theta0.items()}
    return TaskVector.between("colours", base=theta0, tuned=moved)


def test_loras_difference_has_low_rank_and_leaves_norms_and_biases_alone():
    tuned = drain(fine_tune(conv_tower(), training_task(), settings=replace(QUICK, kind="lora", rank=2)))
    for block in block_table(conv_tower().named_parameters()):
        delta = tuned.difference[block.name]
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
    task = training_task(side=32)
    task = replace(task, head=torch.nn.functional.normalize(torch.randn(4, 32), dim=-1))
    tuned = drain(fine_tune(clip.visual, task, settings=replace(QUICK, kind="lora", rank=4, steps=3)))
    bank = TaskVectorBank.from_vectors([vector_of(clip.visual, tuned.difference)])
    stored = bank.stored_as("low-rank-4")
    assert stored.nbytes < 0.1 * bank.nbytes
    assert fidelity(bank, stored)["colours"].relative_error < 2e-3  # small blocks are kept in float16


@pytest.mark.parametrize("tower", TOWERS)
def test_linear_features_are_linear_in_the_difference(tower):
    make = TOWERS[tower]
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
    direction = {name: torch.cos(torch.arange(w.numel()).float()).view(w.shape) for name, w in start.items()}

    def value(model):
        return model.features(images).square().sum()

    model = apply_difference(conv_tower(), "linear", start)
    value(model).backward()
    slope = sum(float((leaf.grad * direction[name]).sum()) for name, leaf in model.leaves.items())
    step = 1e-3  # the value is a parabola along it: central differences are exact but for rounding
    ends = [
        value(
            apply_difference(
                conv_tower(), "linear", {name: start[name] + sign * step * direction[name] for name in start}
            )
        ).detach()
        for sign in (1, -1)
    ]
    assert slope == pytest.approx((ends[0] - ends[1]).item() / (2 * step), rel=1e-2)
