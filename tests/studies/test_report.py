"""Tables and grids made of trials."""

from __future__ import annotations

import itertools

import pytest

from studies.banks.bits import StorageCost, bits_table, cost_table
from studies.banks.selection import STRATEGIES, selection_tables
from studies.banks.task_vectors import BankGeometry, cosine_grid, gain_grid, norm_grid, target_table
from studies.banks.trials import Trial
from studies.tables import ResultTable


def trial(arm, target, seed, accuracy, *, vectors=1):
    numbers = {"shots": 4, "classes": 6, "n_test": 200, "zero_shot": 0.5, "first_loss": 1.0, "last_loss": 0.5}
    return Trial(
        arm=arm,
        target=target,
        seed=seed,
        accuracy=accuracy,
        vectors=vectors,
        outcome="finished",
        seconds=1.0,
        **numbers,
    )


DONORS = [
    trial("signs", "pets", 0, 0.52),
    trial("all", "pets", 0, 0.60, vectors=2),
    trial("signs", "plants", 0, 0.48),
    trial("all", "plants", 0, 0.70, vectors=2),
    trial("signs", "pets", 1, 0.54),
    trial("all", "pets", 1, 0.60, vectors=2),
    trial("signs", "plants", 1, 0.48),
    trial("all", "plants", 1, 0.72, vectors=2),
]


def test_gains_are_points_above_zero_shot_with_the_mean_last():
    grid = gain_grid(DONORS)
    assert (grid.rows, grid.columns) == (("signs", "all"), ("pets", "plants", "mean"))
    assert grid.values[0] == pytest.approx((3.0, -2.0, 0.5))
    assert grid.values[1] == pytest.approx((10.0, 21.0, 15.5))
    assert "4 shots" in grid.about
    assert "2 seed(s)" in grid.about


def test_a_sheet_of_a_grid_shows_the_same_numbers_in_text_and_markdown():
    sheet = ResultTable.of(gain_grid(DONORS))
    assert sheet.plain().splitlines()[2].split() == ["signs", "+3.0", "−2.0", "+0.5"]
    assert "| signs | +3.0 | −2.0 | +0.5 |" in sheet.markdown()
    assert sheet.markdown().startswith("**What each vector is good for.")


def test_targets_are_told_with_their_zero_shot():
    sheet = target_table(DONORS)
    assert list(sheet.rows) == [("pets", 6, 200, "50.0 ± 0.0"), ("plants", 6, 200, "50.0 ± 0.0")]


def test_the_anatomy_becomes_two_grids():
    parts = BankGeometry(("a", "b"), ("stem", "1"), ((1.0, 0.25), (0.25, 1.0)), ((3.0, 4.0), (0.0, 1.0)))
    assert cosine_grid(parts).shown(0.25) == "+0.25"
    assert cosine_grid(parts).reach == 1.0
    assert norm_grid(parts).columns == ("stem", "1")
    assert norm_grid(parts).values[0] == (3.0, 4.0)


def test_formats_are_told_with_their_difference_to_float32():
    trials = [
        trial(arm, "pets", seed, accuracy)
        for seed, accuracies in enumerate([(0.6, 0.58), (0.7, 0.64)])
        for arm, accuracy in zip(("float32", "int4"), accuracies, strict=True)
    ]
    rows = {row[0]: row[1:] for row in bits_table(trials).rows}
    assert rows["float32"] == ("65.0 ± 7.1", "65.0 ± 7.1", "+0.0 ± 0.0")
    assert rows["int4"] == ("61.0 ± 4.2", "61.0 ± 4.2", "-4.0 ± 2.8")
    assert rows["zero-shot"] == ("50.0 ± 0.0", "50.0 ± 0.0", "–")


def test_costs_are_ratios_to_the_first_format():
    found = [
        StorageCost("float32", 4 * 2**20, 0.010, 1.0, 1.0, 0.0, 1.0),
        StorageCost("int8", 2**20, 0.005, 0.5, 0.99995, 0.01, 0.9999),
    ]
    assert cost_table(found).rows[1] == ("int8", "1.0", "0.25", "5.0", "0.50", "0.99995", "1.00", "0.99990")


def test_strategies_stand_beside_each_other_for_each_budget_and_all():
    trials = [
        trial(name, target, 0, 0.5 + 0.01 * budget, vectors=budget)
        for target, budget, name in itertools.product(("pets", "plants"), (1, 2), STRATEGIES)
    ] + [trial("all", target, 0, 0.6, vectors=3) for target in ("pets", "plants")]
    mean, pets, plants = selection_tables(trials)
    assert "mean over targets (zero-shot 50.0)" in mean.title
    assert "pets" in pets.title
    assert "plants" in plants.title
    assert list(mean.columns) == ["strategy", "b = 1", "b = 2", "all 3"]
    assert [row[0] for row in mean.rows] == list(STRATEGIES)
    assert mean.rows[0][1:] == ("51.0", "52.0", "60.0")
    (alone,) = selection_tables([one for one in trials if one.target == "pets"])
    assert "pets" in alone.title
