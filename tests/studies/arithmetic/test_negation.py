"""Methods to forget, compared: rows, resuming, and tables whose numbers are the means of the rows."""

from __future__ import annotations

import dataclasses

import pytest

from atlas_engine.adapt.arithmetic.config import NegateConfig
from atlas_engine.errors import ConfigError
from studies.arithmetic.negation import (
    NegationRow,
    NegationSettings,
    negation_grid,
    negation_tables,
    run_negation,
)
from studies.grid import Ledger

FORGET = NegationSettings(seeds=2, learn=4, max_test=8, control_classes=2, control_test=8)
SHORT = NegateConfig(steps=2, keep=0.5)


def test_there_is_a_row_for_every_method_target_and_seed(engine, tasks, control):
    ledger = Ledger()
    found = list(run_negation(engine, tasks, control, settings=FORGET, config=SHORT, ledger=ledger))
    rows = [row for row, _ in found]
    assert len(rows) == 2 * 2 * 3
    assert all(fresh for _, fresh in found)
    assert {row.method for row in rows} == {"scalar", "atlas", "atlas-bank"}
    assert all(row.n_target == 8 and row.n_control == 8 for row in rows)
    again = list(run_negation(engine, tasks, control, settings=FORGET, config=SHORT, ledger=ledger))
    assert [row for row, _ in again] == rows
    assert not any(fresh for _, fresh in again)


def test_what_forgets_nothing_has_the_accuracies_of_zero_shot(engine, tasks, control):
    settings, idle = dataclasses.replace(FORGET, seeds=1, methods=("atlas",)), NegateConfig(steps=0)
    for row, _ in run_negation(engine, tasks, control, settings=settings, config=idle, ledger=Ledger()):
        assert row.kept == "zero-shot"
        assert (row.target, row.control) == (row.target_zero_shot, row.control_zero_shot)


def test_all_targets_of_a_seed_share_its_control(engine, tasks, control, monkeypatch):
    from studies.arithmetic import negation

    drawn, real = [], negation.draw_unseen_problem

    def counting(folder, pool, shape, *, settings, seed):
        drawn.append((folder.name, seed))
        return real(folder, pool, shape, settings=settings, seed=seed)

    monkeypatch.setattr(negation, "draw_unseen_problem", counting)
    list(run_negation(engine, tasks, control, settings=FORGET, config=SHORT, ledger=Ledger()))
    assert drawn.count((control.name, 0)) == drawn.count((control.name, 1)) == 1
    assert len(drawn) == 2 * (len(tasks) + 1)


def test_a_method_that_is_named_twice_is_measured_once():
    assert NegationSettings(methods=("atlas", "scalar", "atlas")).methods == ("atlas", "scalar")
    with pytest.raises(ConfigError, match="methods is empty"):
        NegationSettings(methods=())


# ---- the report, by numbers worked out by hand


def forgot(dataset, method, seed, target, control):
    return NegationRow(dataset, dataset, method, seed, target, control, 0.5, 0.8, 10, 10, method, 3.0)


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
