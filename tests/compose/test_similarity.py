"""Cosines of task vectors, against closed forms."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.vector import TaskVector
from atlas_engine.compose.contributions import similarities
from atlas_engine.views.coefficients import similarity_grid
from atlas_engine.views.heatmap import as_text

BASE = {"stem.weight": torch.zeros(2, 2), "head.bias": torch.zeros(2)}


def bank_of(**vectors):
    """A bank from six numbers a task: four of a weight, two of a bias."""
    made = []
    for name, numbers in vectors.items():
        flat = torch.tensor(numbers)
        tuned = {"stem.weight": flat[:4].view(2, 2), "head.bias": flat[4:]}
        made.append(TaskVector.between(name, base=BASE, tuned=tuned))
    return TaskVectorBank.from_vectors(made)


@pytest.fixture
def bank():
    """`near` leans 45° to `first`; `back` points against it; `other` has nothing in common with any."""
    return bank_of(
        first=[3.0, 0, 0, 0, 0, 0],
        other=[0, 5.0, 0, 0, 0, 0],
        back=[-2.0, 0, 0, 0, 0, 0],
        near=[1.0, 0, 0, 0, 1.0, 0],
    )


def test_cosines_are_those_of_the_whole_vectors_over_all_blocks(bank):
    half = 0.5**0.5
    wanted = [[1, 0, -1, half], [0, 1, 0, 0], [-1, 0, 1, -half], [half, 0, -half, 1]]
    assert torch.allclose(similarities(bank).values, torch.tensor(wanted, dtype=torch.float64))


def test_a_vector_of_zeros_is_like_no_other():
    values = similarities(bank_of(still=[0.0] * 6, moved=[1.0, 2, 3, 4, 5, 6])).values
    assert torch.isfinite(values).all()
    assert values[0].tolist() == [0, 0]


def test_a_part_of_a_bank_has_the_cosines_of_the_whole(bank):
    part = bank.select(["near", "first", "other"])
    assert similarities(part).values[0, 1] == pytest.approx(0.5**0.5)


def test_in_order_each_is_followed_by_the_likest_of_those_left():
    bank = bank_of(  # by sums of cosines: near 1.15, first 0.81, other 0.69, back negative; no ties
        first=[3.0, 0, 0, 0, 0, 0],
        other=[0, 5.0, 0, 0, 0, 0],
        back=[-2.0, -1.0, 0, 0, 0, 0],
        near=[1.0, 0.2, 0, 0, 1.0, 0],
    )
    ordered = similarities(bank).in_order()
    assert ordered.tasks == ("near", "first", "other", "back")
    assert ordered.values[0, 1] == pytest.approx(1 / 2.04**0.5)
    assert torch.equal(ordered.values, ordered.values.T)


def test_the_grid_names_every_donor_twice_and_says_nothing_of_itself(bank):
    grid = similarity_grid(similarities(bank))
    assert grid.rows == grid.columns
    assert all(grid.values[place][place] is None for place in range(len(grid.rows)))
    assert "+0.71" in as_text(grid)
