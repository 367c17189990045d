"""Ways to forget and to add, compared: rows, resuming, and tables whose numbers are the means of the rows."""

from __future__ import annotations

import pytest

from atlas_engine.bank.bank_file import save_bank
from atlas_engine.engine import Atlas
from atlas_engine.errors import ConfigError
from studies.arithmetic.addition import (
    AdditionRow,
    AdditionSettings,
    addition_grid,
    addition_tables,
    run_addition,
)
from studies.arithmetic.negation import (
    NegationRow,
    NegationSettings,
    negation_grid,
    negation_tables,
    run_negation,
)
from studies.grid import Ledger
from studies.problems.unseen import VectorTask
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

FORGET = NegationSettings(seeds=2, learn=4, max_test=8, control_classes=2, control_test=8, steps=2, keep=0.5)
ADD = AdditionSettings(seeds=2, learn=4, max_test=8, steps=2)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("bank") / "bank.safetensors"
    save_bank(tiny_bank(tiny_engine().backbone.visual, size=0.5), path)
    return Atlas(tiny_engine().backbone, bank_path=path)


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    colours = {"task0": {"red": 10, "blue": 10}, "task1": {"dark_green": 10, "grey": 10}}
    return {name: VectorTask(write_pictures(root / name, counts), name) for name, counts in colours.items()}


@pytest.fixture(scope="module")
def control(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("control") / "set", {"red": 10, "grey": 10})


def test_forgetting_has_a_row_for_every_way_target_and_seed(engine, targets, control):
    ledger = Ledger()
    found = list(run_negation(engine, targets, control, settings=FORGET, ledger=ledger))
    rows = [row for row, _ in found]
    assert len(rows) == 2 * 2 * 3
    assert all(fresh for _, fresh in found)
    assert {row.method for row in rows} == {"scalar", "atlas", "atlas-bank"}
    assert all(row.n_target == 8 and row.n_control == 8 for row in rows)
    again = list(run_negation(engine, targets, control, settings=FORGET, ledger=ledger))
    assert [row for row, _ in again] == rows
    assert not any(fresh for _, fresh in again)


def test_what_forgets_nothing_has_the_accuracies_of_zero_shot(engine, targets, control):
    settings = NegationSettings(
        seeds=1, learn=4, max_test=8, control_classes=2, control_test=8, steps=0, methods=("atlas",)
    )
    for row, _ in run_negation(engine, targets, control, settings=settings, ledger=Ledger()):
        assert row.kept == "zero-shot"
        assert (row.target, row.control) == (row.target_zero_shot, row.control_zero_shot)


def test_adding_has_a_row_for_every_way_task_and_seed(engine, targets):
    ledger = Ledger()
    found = list(run_addition(engine, targets, settings=ADD, ledger=ledger))
    rows = [row for some, _ in found for row in some]
    assert len(rows) == 2 * 2 * 7
    assert len(found) == 2 * 7
    for row in rows:
        assert row.normalised == pytest.approx(row.accuracy / row.own if row.own else 0.0)
        assert row.method != "zero-shot" or row.accuracy == row.zero_shot
    again = list(run_addition(engine, targets, settings=ADD, ledger=ledger))
    assert [row for some, _ in again for row in some] == rows
    assert not any(fresh for _, fresh in again)


def test_an_unknown_way_is_refused_when_it_is_named():
    with pytest.raises(ConfigError, match="ties"):
        AdditionSettings(methods=("tise",))


def forgot(dataset, method, seed, target, control):
    return NegationRow(dataset, dataset, method, seed, target, control, 0.5, 0.8, 10, 10, method, 3.0)


def added(dataset, method, seed, accuracy):
    return AdditionRow(dataset, dataset, method, seed, accuracy, accuracy / 0.8, 0.8, 0.1, 10, 2, 3.0)


def test_a_table_of_forgetting_has_the_means_of_its_rows():
    rows = [
        forgot(name, "atlas", seed, target, 0.76)
        for name, seed, target in (("a", 0, 0.1), ("b", 0, 0.3), ("a", 1, 0.3), ("b", 1, 0.5))
    ]
    mean, targets, controls = negation_tables(rows)
    assert mean.rows[0][:3] == ("zero-shot", "50.0 ± 0.0", "80.0 ± 0.0")
    assert mean.rows[1][:4] == ("atlas", "30.0 ± 14.1", "76.0 ± 0.0", "95.0 ± 0.0")
    assert targets.rows[1] == ("atlas", "20.0 ± 14.1", "40.0 ± 14.1")
    assert controls.columns == ("method", "a", "b")
    assert negation_grid(rows).values[0] == pytest.approx((-30.0, -10.0, -20.0))


def test_a_table_of_adding_has_the_means_of_its_rows():
    rows = [added(name, "atlas", 0, accuracy) for name, accuracy in (("a", 0.4), ("b", 0.8))]
    mean, accuracies, normalised = addition_tables(rows)
    assert mean.rows[0] == ("atlas", "60.0", "75.0", "3")
    assert accuracies.rows == [("atlas", "40.0", "80.0"), ("own vector", "80.0", "80.0")]
    assert normalised.rows == [("atlas", "50.0", "100.0")]
    assert addition_grid(rows).values == (pytest.approx((50.0, 100.0, 75.0)),)


@pytest.mark.parametrize("settings", [NegationSettings, AdditionSettings])
def test_a_way_that_is_named_twice_is_measured_once(settings):
    assert settings(methods=("atlas", "scalar", "atlas")).methods == ("atlas", "scalar")
    with pytest.raises(ConfigError, match="methods is empty"):
        settings(methods=())
