"""Sums of panels that keep their bits on a GPU: they equal those of a CPU, in any order of the terms."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.bank.panels import TILE, BundlePanel, DensePanel, sum_by_index


def draw(tasks=3, count=5000, *, size=1.0):
    generator = torch.Generator().manual_seed(count)
    numbers = size * torch.randn(tasks, count, generator=generator)
    index = torch.randint(0, 20, (count,), generator=generator).expand(tasks, -1)
    return numbers, index


@pytest.mark.parametrize("size", [1e-20, 1e-3, 1e20])
def test_sums_by_index_are_float64_sums_to_float32(size):
    numbers, index = draw(size=size)
    wanted = torch.zeros(3, 20, dtype=torch.float64).scatter_add_(1, index, numbers.double())
    # rounded once, at the end: half a unit in the last of 24 bits
    torch.testing.assert_close(sum_by_index(numbers, index, count=20).double(), wanted, rtol=2**-24, atol=0)


def test_sums_by_index_have_the_same_bits_in_any_order():
    numbers, index = draw()
    wanted = sum_by_index(numbers, index, count=20)
    for seed in range(5):
        order = torch.randperm(numbers.shape[1], generator=torch.Generator().manual_seed(seed))
        assert torch.equal(sum_by_index(numbers[:, order], index[:, order], count=20), wanted)
        in_order = torch.zeros(3, 20).scatter_add_(1, index[:, order], numbers[:, order])
        torch.testing.assert_close(in_order, wanted, rtol=1e-4, atol=1e-4)  # float32 sums of 250 terms


def test_tasks_of_different_size_do_not_disturb_each_other():
    numbers, index = draw()
    numbers *= torch.tensor([[1e-12], [1.0], [1e12]])
    wanted = torch.zeros(3, 20, dtype=torch.float64).scatter_add_(1, index, numbers.double())
    torch.testing.assert_close(sum_by_index(numbers, index, count=20).double(), wanted, rtol=2**-24, atol=0)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_not_finite_is_not_hidden(number):
    numbers, index = draw()
    numbers[1, 100] = number
    sums = sum_by_index(numbers, index, count=20)
    assert sums[1].isnan().all()
    assert sums[::2].isfinite().all()


def test_a_task_of_zeros_has_sums_of_zero():
    numbers, index = draw()
    numbers[0] = 0.0
    assert torch.equal(sum_by_index(numbers, index, count=20)[0], torch.zeros(20))


def test_tiles_are_summed_block_by_block():
    sizes = (1, TILE, TILE + 1, 5 * TILE, 3)
    bundle = BundlePanel.from_panels([DensePanel((m,), torch.ones(2, size)) for m, size in enumerate(sizes)])
    per_tile = torch.randn(bundle.tiles.shape[1], 4, 2, generator=torch.Generator().manual_seed(0))
    zeros = torch.zeros(len(sizes), 4, 2)
    wanted = zeros.index_add_(0, bundle.tile_owner, per_tile)
    torch.testing.assert_close(bundle.sum_tiles(per_tile), wanted, rtol=0, atol=1e-6)  # five terms at most
    moved = bundle.with_tensors(bundle.select_tasks([1]).tensors())
    torch.testing.assert_close(moved.sum_tiles(per_tile), wanted, rtol=0, atol=1e-6)
