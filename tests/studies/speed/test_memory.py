"""The planner's memory beside the peak of a real run, in a process of its own."""

from __future__ import annotations

import pytest

from atlas_engine.errors import EvalError
from studies.speed import memory as suite
from studies.speed.memory import MeasuredRun, measure_run, memory
from studies.speed.vit import VitShape

SMALL = VitShape("small", width=128, layers=2, patch=16, pixels=64, embedding=32)


def test_a_run_is_measured_with_its_tower_and_bank_and_as_planned_in_turn():
    found = measure_run(SMALL, steps=1, in_turn=True)
    assert found.steps == 5  # one of each training, in turn
    assert found.planned_nbytes == sum(found.items.values())
    assert found.peak_nbytes > found.items["base weights"] + found.items["bank"]


def test_plans_are_held_to_a_tenth_from_both_sides(monkeypatch):
    def give(_shape, *, in_turn=False, **_case):
        return MeasuredRun(120 if in_turn else 100, 100, {"bank": 60}, 2)

    monkeypatch.setattr(suite, "_in_own_process", give)
    report = memory(shape=SMALL)
    assert [(bar.value, bar.relation, bar.limit, bar.passed) for bar in report.bars] == [
        (1.0, "<=", 1.1, True),
        (1.0, ">=", 0.9, True),
        (1.2, "<=", 1.1, False),
        (1.2, ">=", 0.9, True),
    ]


def test_a_process_that_fails_is_an_error_with_its_exit_code(capfd):
    with pytest.raises(EvalError, match="ended with exit code 1"):
        suite._in_own_process(SMALL, steps=1, no_such_word=True)
    assert "no_such_word" in capfd.readouterr().err
