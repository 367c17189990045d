"""Low-rank differences: the base at the start, as many numbers as allowed, gradients as by differences."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.bank.blocks import Block, BlockTable, block_table
from atlas_engine.errors import EvalError
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.supervised import CrossEntropy
from studies.low_rank import LowRankPlan, TrainableLowRank, plan_full_rank, plan_low_rank
from tests.tiny import tiny_clip, tiny_head, tiny_images

A = Block("a", (10, 6), 1, "matrix")
B = Block("b", (8, 4, 1, 1), 2, "conv")
TABLE = BlockTable([A, Block("norm", (10,), 1, "norm"), B])


@pytest.fixture(scope="module")
def visual():
    return tiny_clip("vit").visual


def trainable(visual, plan, seed=0):
    return TrainableLowRank(visual, plan, tiny_head(), logit_scale=20.0, lr=0.05, seed=seed)


def start(one):
    return {name: leaf.start for name, leaf in one.tensors_to_learn.items()}


def test_a_plan_has_the_highest_rank_within_the_numbers():
    assert plan_low_rank(TABLE, parameters=28) == LowRankPlan((A, B), 1), "16 and 12"
    assert plan_low_rank(TABLE, parameters=55).rank == 1
    assert plan_low_rank(TABLE, parameters=56).rank == 2
    assert plan_low_rank(TABLE, parameters=56).parameters == 56
    assert plan_low_rank(TABLE, parameters=10**6).rank == 5, "below the rank at which all is learned whole"
    assert LowRankPlan((A, B), 4).parameters == 4 * 16 + 32, "a matrix of rank 4 has no more than its numbers"


def test_where_rank_one_of_all_is_too_much_the_last_that_fit_learn():
    assert plan_low_rank(TABLE, parameters=27) == LowRankPlan((B,), 1)
    assert plan_low_rank(TABLE, parameters=3) == LowRankPlan((B,), 1), "no low rank is smaller"


def test_fine_tuning_is_every_matrix_whole():
    assert plan_full_rank(TABLE).parameters == 60 + 32
    assert plan_full_rank(TABLE).lr < plan_low_rank(TABLE, parameters=28).lr
    with pytest.raises(EvalError, match="no matrix"):
        plan_full_rank(BlockTable([Block("norm", (10,), 1, "norm")]))


@pytest.mark.parametrize("rank", [1, 3, None])
def test_it_starts_at_the_base_model_exactly(visual, rank):
    blocks = plan_full_rank(block_table(visual.named_parameters())).blocks
    one, images = trainable(visual, LowRankPlan(blocks, rank)), tiny_images()
    features = torch.nn.functional.normalize(visual(images), dim=-1)
    expected = 20.0 * features @ tiny_head().T
    torch.testing.assert_close(one.at(start(one)).logits_fn(0)(images), expected)
    assert sum(leaf.numel() for leaf in start(one).values()) == LowRankPlan(blocks, rank).parameters


def test_gradients_are_those_of_finite_differences(visual):
    blocks = plan_full_rank(block_table(visual.named_parameters())).blocks[-1:]
    one, batch = (
        trainable(visual, LowRankPlan(blocks, 2)),
        Batch(tiny_images(), labels=torch.tensor([0, 1, 2, 3, 0, 1])),
    )
    draw = torch.Generator().manual_seed(0)
    values = {name: leaf + 0.1 * torch.randn(leaf.shape, generator=draw) for name, leaf in start(one).items()}
    forward = one.at(values)
    CrossEntropy()(forward.logits_fn(0), batch).backward()
    grads = forward.gradients()

    def loss(name, index, step):
        moved = {**values, name: values[name].clone()}
        moved[name].view(-1)[index] += step
        return float(CrossEntropy()(one.at(moved).logits_fn(0), batch).detach())

    for name in values:
        slope = (loss(name, 3, 1e-2) - loss(name, 3, -1e-2)) / 2e-2
        assert slope == pytest.approx(float(grads[name].view(-1)[3]), rel=0.03, abs=1e-3)  # float32 logits


def test_the_seed_draws_the_factors_and_runs_go_one_at_a_time(visual):
    plan = plan_low_rank(block_table(visual.named_parameters()), parameters=2000)
    one, same, other = (start(trainable(visual, plan, seed)) for seed in (0, 0, 1))
    name = next(name for name in one if name.endswith("#v"))
    assert torch.equal(one[name], same[name])
    assert not torch.equal(one[name], other[name])
    with pytest.raises(EvalError, match="one run at a time"):
        trainable(visual, plan).at({name: value.expand(2, *value.shape[1:]) for name, value in one.items()})
