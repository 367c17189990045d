"""Trials: a vector's worth is measured, and nothing is measured twice."""

from __future__ import annotations

import dataclasses
import json

import pytest

from atlas_engine.bank import TaskVectorBank
from atlas_engine.errors import BankError, EvalError
from studies.banks.task_vectors import single_vector_variants
from studies.banks.trials import BankVariant, Trial, run_trials, whole_bank_variant
from studies.grid import Ledger
from studies.tables import seed_mean
from tests.drawn import write_pictures
from tests.studies.drawn_tasks import QUICK
from tests.tiny import tiny_bank, tiny_clip


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return Ledger(tmp_path_factory.mktemp("ledger") / "rows")


@pytest.fixture(scope="module")
def trials(tiny, bank, folder, ledger):
    return [trial for trial, _ in run(tiny, single_vector_variants(bank), folder, ledger)]


def run(tiny, variants, folder, ledger, **changes):
    settings = dataclasses.replace(QUICK, **changes)
    return list(run_trials(tiny, variants, [folder], settings=settings, ledger=ledger))


def of(trials, arm):
    return [trial for trial in trials if trial.arm == arm]


def unused(_problem):
    raise AssertionError("a bank was asked for")


def test_there_is_a_trial_for_every_variant_and_seed(trials):
    assert [(trial.arm, trial.seed) for trial in trials] == [
        (arm, seed) for seed in (0, 1) for arm in ("colours", "noise", "zero", "all")
    ]
    assert {trial.target for trial in trials} == {"colours"}
    assert [trial.vectors for trial in trials[:4]] == [1, 1, 1, 3]
    first = trials[0]
    assert (first.shots, first.classes, first.n_test, first.outcome) == (2, 3, 18, "finished")


def test_a_vector_trained_for_the_target_gains_and_a_zero_vector_does_not(trials):
    for trial in of(trials, "colours"):
        assert trial.gain >= 0.2
        assert trial.last_loss < trial.first_loss
    for trial in of(trials, "zero"):
        assert trial.accuracy == trial.zero_shot
        assert trial.gain == 0.0
    assert seed_mean(of(trials, "all")).mean > seed_mean(of(trials, "noise")).mean


def test_one_problem_is_measured_alike_for_all_variants(trials):
    for seed in (0, 1):
        assert len({trial.zero_shot for trial in trials if trial.seed == seed}) == 1


def test_a_second_run_computes_nothing_and_gives_the_same_trials(tiny, bank, folder, ledger, trials):
    variants = [dataclasses.replace(one, bank=unused) for one in single_vector_variants(bank)]
    before = ledger.path.read_bytes()
    again = run(tiny, variants, folder, Ledger(ledger.path))
    assert again == [(trial, False) for trial in trials]
    assert ledger.path.read_bytes() == before


def test_a_killed_run_goes_on_with_what_is_left(tiny, bank, folder, ledger, trials, tmp_path):
    lines = ledger.path.read_text().splitlines(keepends=True)
    (tmp_path / "rows").write_text("".join(lines[:3]) + lines[3][:20])
    rest = run(tiny, single_vector_variants(bank), folder, Ledger(tmp_path / "rows"))
    assert [fresh for _, fresh in rest] == [False] * 3 + [True] * 5
    without_seconds = [dataclasses.replace(trial, seconds=0.0) for trial, _ in rest]
    assert without_seconds == [dataclasses.replace(trial, seconds=0.0) for trial in trials]


def test_a_bank_that_grew_keeps_the_trials_of_its_old_vectors(tiny, bank, folder, ledger, trials):
    fewer = bank.select(["zero", "colours"])
    found = run(tiny, single_vector_variants(fewer), folder, Ledger(ledger.path), seeds=1)
    assert [(trial.arm, fresh) for trial, fresh in found] == [
        ("zero", False),
        ("colours", False),
        ("all", True),
    ]


def test_anything_that_changes_the_answer_is_another_trial(tiny, bank, folder, ledger, trials, tmp_path):
    variants = [single_vector_variants(bank)[2]]
    assert [fresh for _, fresh in run(tiny, variants, folder, ledger)] == [False, False]
    for changes in ({"steps": 1}, {"lr": 0.2}, {"batch": 5}, {"shots": 1}, {"max_test": 9}):
        assert run(tiny, variants, folder, Ledger(ledger.path), **changes, seeds=1)[0][1], changes
    narrow = [single_vector_variants(bank.stored_as("float16"))[2]]
    assert run(tiny, narrow, folder, Ledger(ledger.path), seeds=1)[0][1]
    renamed = write_pictures(tmp_path / "renamed", {"red": 12, "blue": 12, "dark_green": 11})
    assert run(tiny, variants, renamed, Ledger(ledger.path), seeds=1)[0][1]


def test_two_targets_of_one_name_are_refused(tiny, bank, folder):
    with pytest.raises(EvalError, match="two folders are called 'colours'"):
        next(
            run_trials(tiny, single_vector_variants(bank), [folder, folder], settings=QUICK, ledger=Ledger())
        )


def test_a_bank_for_another_model_is_refused(tiny, folder):
    other = tiny_bank(tiny_clip("resnet").visual)
    with pytest.raises(BankError, match="made for another model"):
        run(tiny, [whole_bank_variant(other)], folder, Ledger())


def test_a_lone_vector_has_no_second_variant_of_all(bank):
    alone = TaskVectorBank.from_vectors([bank.vector("noise")])
    assert [variant.name for variant in single_vector_variants(alone)] == ["noise"]


def test_a_trial_is_plain_json(trials):
    assert Trial(**json.loads(json.dumps(trials[0].as_dict()))) == trials[0]


def test_a_variant_may_choose_its_bank_by_the_problem(tiny, bank, folder):
    asked = []

    def choose(problem):
        asked.append((problem.target, problem.seed))
        return bank.select(["noise"])

    run(tiny, [BankVariant("chosen", 1, ("x",), choose)], folder, Ledger(), steps=1)
    assert asked == [("colours", 0), ("colours", 1)]
