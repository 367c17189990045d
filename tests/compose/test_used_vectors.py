"""The tower of coefficients that are mostly 0: made from the vectors that are used, with the same answer."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.used_vectors import build_tower, find_used, use_few
from tests.tiny import tiny_bank, tiny_clip

LAYOUTS = (Layout(), Layout(partitions=3), Layout(partitions=3, split_by="rows"), Layout("matrices"))


@pytest.fixture(scope="module")
def visual():
    return tiny_clip().visual


def few_coefficients(bank, layout: Layout) -> Coefficients:
    """λ of two vectors in each block at most, others in every block, and of none in the first five blocks."""
    draw = torch.Generator().manual_seed(3)
    values = torch.randn(layout.shape(len(bank), bank.blocks), generator=draw)
    for m in range(values.shape[1]):
        values[:, m][torch.randperm(len(bank), generator=draw)[2 if m >= 5 else 0 :]] = 0
    values[:, 7] = 0
    values[1, 7] = 0.5  # a block with one vector
    return Coefficients(values, layout, bank.tasks, bank.blocks)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_tower_of_used_vectors_is_that_of_all_vectors(visual, layout):
    bank = tiny_bank(visual, tasks=6)
    coefficients = few_coefficients(bank, layout)
    tower = dict(build_tower(visual, bank, coefficients).named_parameters())
    base = dict(visual.named_parameters())
    wanted = Composer(base, bank, layout).compose(coefficients.values)
    for name, weights in wanted.items():
        # float32 sums of the same few products, with zeros between them or not
        torch.testing.assert_close(tower[name], weights, rtol=1e-6, atol=1e-7)


def test_used_vectors_are_packed_into_as_few_as_a_block_needs(visual):
    bank = tiny_bank(visual, tasks=6)
    coefficients = few_coefficients(bank, Layout())
    used = find_used(coefficients)
    packed = use_few(bank, coefficients, used)
    assert len(packed.bank) == 2
    assert len(packed.bank.blocks) == int(used.any(dim=0).sum()) < len(bank.blocks)


def test_coefficients_of_zero_give_the_base_model_and_read_no_vector(visual):
    bank = tiny_bank(visual, tasks=2)
    tower = build_tower(visual, bank, Coefficients.zeros(bank.tasks, bank.blocks))
    base = dict(visual.named_parameters())
    for name, weights in tower.named_parameters():
        assert torch.equal(weights, base[name])
        assert weights.data_ptr() != base[name].data_ptr()


def test_the_same_vectors_give_the_same_weights_in_a_larger_bank(visual):
    small, large = (tiny_bank(visual, tasks=tasks) for tasks in (4, 9))
    few = few_coefficients(small, Layout())
    values = torch.cat([few.values, torch.zeros(5, few.values.shape[1])])
    many = Coefficients(values, Layout(), large.tasks, large.blocks)
    one, other = (build_tower(visual, *pair) for pair in ((small, few), (large, many)))
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(first, second)
