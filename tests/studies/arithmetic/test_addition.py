"""Methods to add tasks, compared: rows, resuming, and tables whose numbers are the means of the rows."""

from __future__ import annotations

import pytest

from atlas_engine.adapt.arithmetic.config import AddConfig
from atlas_engine.errors import ConfigError
from studies.arithmetic.addition import (
    AdditionRow,
    AdditionSettings,
    addition_grid,
    addition_tables,
    run_addition,
)
from studies.grid import Ledger

ADD = AdditionSettings(seeds=2, learn=4, max_test=8)
SHORT = AddConfig(steps=2)


def test_there_is_a_row_for_every_method_task_and_seed(engine, tasks):
    ledger = Ledger()
    found = list(run_addition(engine, tasks, settings=ADD, config=SHORT, ledger=ledger))
    rows = [row for some, _ in found for row in some]
    assert len(rows) == 2 * 2 * 7
    assert len(found) == 2 * 7
    for row in rows:
        assert row.normalised == pytest.approx(row.accuracy / row.own if row.own else 0.0)
        assert row.method != "zero-shot" or row.accuracy == row.zero_shot
    again = list(run_addition(engine, tasks, settings=ADD, config=SHORT, ledger=ledger))
    assert [row for some, _ in again for row in some] == rows
    assert not any(fresh for _, fresh in again)


def test_an_unknown_method_is_refused_when_it_is_named():
    with pytest.raises(ConfigError, match="ties"):
        AdditionSettings(methods=("tise",))


def test_a_method_that_is_named_twice_is_measured_once():
    assert AdditionSettings(methods=("atlas", "scalar", "atlas")).methods == ("atlas", "scalar")
    with pytest.raises(ConfigError, match="methods is empty"):
        AdditionSettings(methods=())


# ---- the report, by numbers worked out by hand


def added(dataset, method, seed, accuracy):
    return AdditionRow(dataset, dataset, method, seed, accuracy, accuracy / 0.8, 0.8, 0.1, 10, 2, 3.0)


def test_a_table_of_adding_has_the_means_of_its_rows():
    rows = [added(name, "atlas", 0, accuracy) for name, accuracy in (("a", 0.4), ("b", 0.8))]
    mean, accuracies, normalised = addition_tables(rows)
    assert mean.rows[0] == ("atlas", "60.0", "75.0", "3")
    assert accuracies.rows == [("atlas", "40.0", "80.0"), ("own vector", "80.0", "80.0")]
    assert normalised.rows == [("atlas", "50.0", "100.0")]
    assert addition_grid(rows).values == (pytest.approx((50.0, 100.0, 75.0)),)
