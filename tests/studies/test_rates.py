"""The search of learning rates: every rate on every problem, and the best by the mean of its rows."""

from __future__ import annotations

import dataclasses

import pytest

from atlas_engine.bank.train import LEARNING_RATES
from atlas_engine.errors import ConfigError
from studies.grid import Ledger
from studies.rates import RateRow, RateSettings, best_rates, count_rate_rows, rate_table, search_rates

SEARCH = RateSettings(
    shots=(1, 2),
    methods=("finetune-half+head", "lora-half+head"),
    factors=(1.0, 0.01),
    max_test=6,
    steps=2,
    batch=4,
)


@pytest.fixture(scope="module")
def rows(tiny, folder):
    return [row for row, _ in search_rates(tiny, {"colours": folder}, settings=SEARCH, ledger=Ledger())]


def test_every_rate_of_every_method_is_measured_on_every_problem(rows):
    assert len(rows) == count_rate_rows(SEARCH, folders=1) == 8
    rates = {(row.method, row.lr) for row in rows}
    assert rates == {
        (method, factor * LEARNING_RATES[kind])
        for method, kind in (("finetune-half+head", "standard"), ("lora-half+head", "lora"))
        for factor in (0.01, 1.0)
    }


def test_a_search_that_was_stopped_measures_only_what_is_left(tiny, folder, tmp_path):
    quick = dataclasses.replace(SEARCH, shots=(1,), methods=("lora-half+head",))
    ledger = Ledger(tmp_path / "rows")
    first = dataclasses.replace(quick, factors=(1.0,))
    assert [fresh for _, fresh in search_rates(tiny, {"c": folder}, settings=first, ledger=ledger)] == [True]
    again = search_rates(tiny, {"c": folder}, settings=quick, ledger=Ledger(tmp_path / "rows"))
    assert [fresh for _, fresh in again] == [True, False], "0.01 is new, 1 is known"


def drawn_row(dataset, method, shots, lr, accuracy):
    return RateRow(dataset, method, shots, 0, accuracy, 10, 0.0, fell_back=False, lr=lr)


def test_the_best_rate_has_the_highest_mean_over_data_sets_and_shots():
    numbers = {1e-4: (0.5, 0.5, 0.7, 0.7), 1e-3: (0.9, 0.3, 0.5, 0.5)}
    cells = [("a", 1), ("b", 1), ("a", 4), ("b", 4)]
    rows = [
        drawn_row(dataset, "finetune-half+head", shots, lr, accuracy)
        for lr, accuracies in numbers.items()
        for (dataset, shots), accuracy in zip(cells, accuracies, strict=True)
    ]
    assert best_rates(rows) == {"finetune-half+head": 1e-4}
    assert rate_table(rows).rows == [
        ("finetune-half+head", "0.0001", "50.0 ± 0.0", "70.0 ± 0.0", "60.0 ± 0.0", "best"),
        ("finetune-half+head", "0.001", "60.0 ± 30.0", "50.0 ± 0.0", "55.0 ± 15.0", ""),
    ]


def test_rates_are_searched_for_methods_that_keep_half_of_the_way():
    with pytest.raises(ConfigError, match="methods"):
        RateSettings(methods=("auto",))
    with pytest.raises(ConfigError, match="factors is empty"):
        RateSettings(factors=())
