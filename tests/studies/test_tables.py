"""What reports share: means over seeds, rows picked by field, and tables as text and markdown."""

from __future__ import annotations

import dataclasses

import pytest

from atlas_engine.errors import EvalError
from studies.banks.task_vectors import gain_grid
from studies.few_shot import FewShotRow
from studies.tables import ResultTable, clustered_mean, count_range, distinct, grid_values, seed_mean, where
from tests.studies.banks.fake_trials import TRIALS


def test_the_mean_is_over_seeds_of_means_over_targets():
    def trial(target, seed, accuracy):
        return dataclasses.replace(TRIALS[0], target=target, seed=seed, accuracy=accuracy)

    found = seed_mean([trial("a", 0, 0.2), trial("b", 0, 0.4), trial("a", 1, 0.6), trial("b", 1, 0.4)])
    assert found.mean == pytest.approx(0.4)
    assert found.spread == pytest.approx(0.1414, abs=1e-4)  # of 0.3 and 0.5
    assert found.percent() == "40.0 ± 14.1"
    assert seed_mean([trial("a", 0, 0.2)]).percent(sign=True) == "+20.0"
    with pytest.raises(EvalError, match="no row"):
        seed_mean([])


def test_the_error_of_a_clustered_mean_counts_data_sets_and_not_problems():
    rows = [
        FewShotRow(dataset, "tip", 1, seed, accuracy, 10, 0.0, fell_back=False)
        for dataset, accuracy in (("a", 0.2), ("b", 0.6))
        for seed in range(50)
    ]
    found = clustered_mean(rows)
    assert found.mean == pytest.approx(0.4)
    assert found.spread == pytest.approx(0.2), "the deviation of 0.2 and 0.6 by √2, however many seeds"
    assert clustered_mean(rows[:50]).spread is None
    with pytest.raises(EvalError, match="no row"):
        clustered_mean([])


def test_rows_are_picked_by_their_fields_and_values_listed_once():
    assert distinct(TRIALS, "target") == ("pets", "plants")
    assert [trial.seed for trial in where(TRIALS, arm="all", target="pets")] == [0, 1]


def test_a_grid_ends_each_line_with_the_number_of_all_of_it():
    assert grid_values(TRIALS, len, row="arm", column="target") == ((2, 2, 4), (2, 2, 4))


def test_a_range_of_counts_is_one_number_where_all_are_equal():
    assert count_range([34, 1200, 36]) == "34–1,200"
    assert count_range([900, 900]) == "900"


def test_a_table_of_a_grid_shows_the_same_numbers_in_text_and_markdown():
    table = ResultTable.of(gain_grid(TRIALS))
    assert table.plain().splitlines()[2].split() == ["signs", "+3.0", "−2.0", "+0.5"]
    assert "| signs | +3.0 | −2.0 | +0.5 |" in table.markdown()
    assert table.markdown().startswith("**What each vector is good for.")
