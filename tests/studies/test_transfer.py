"""One domain to learn from, others to be asked about: the same model, and nothing seen beforehand."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.errors import ConfigError, EvalError
from studies.corruptions import Corruption
from studies.grid import Ledger
from studies.methods import STUDY_METHODS, Solver, StudyMethod
from studies.problems.few_shot import draw_problem
from studies.transfer import (
    COMPARED,
    TransferRow,
    TransferSettings,
    draw_domains,
    require_matching_classes,
    run_transfer,
)
from tests.drawn import write_pictures

QUICK = TransferSettings(
    shots=2,
    seeds=1,
    methods=("zero-shot", "lpp", "atlas", "auto"),
    damages=("fog:3", "jpeg:5"),
    max_test=9,
    steps=2,
    batch=4,
)


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    root = tmp_path_factory.mktemp("domains")
    more = {"blue": 5, "dark_green": 5, "grey": 5, "red": 5}
    return {"small": write_pictures(root / "small", more, side=12)}


@pytest.fixture(scope="module")
def solver(tiny, bank):
    return Solver(tiny, bank=bank, config=QUICK.budget())


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return Ledger(tmp_path_factory.mktemp("transfer") / "rows")


@pytest.fixture(scope="module")
def rows(solver, folder, others, ledger):
    return [row for row, _ in run(solver, folder, others, ledger)]


def run(solver, folder, others, ledger, **changes):
    settings = dataclasses.replace(QUICK, **changes)
    return list(run_transfer(solver, {"colours": folder}, others, settings=settings, ledger=ledger))


def test_every_method_answers_for_every_domain(rows):
    domains = ["colours", "small", "fog:3", "jpeg:5"]
    assert [(row.method, row.domain) for row in rows] == [(m, d) for m in QUICK.methods for d in domains]
    assert [row.at_home for row in rows[:4]] == [True, False, False, False]
    assert {row.shots for row in rows} == {2}
    assert all(row.n_test == 9 and 0 <= row.accuracy <= 1 for row in rows)


def test_another_domain_has_the_sources_classes_with_the_sources_numbers(tiny, folder, others):
    shape = tiny.backbone.preprocessing
    problem = draw_problem(folder, shape, settings=QUICK.draws(), seed=0)
    home, small, fog, _ = draw_domains("colours", folder, problem, others, shape=shape, settings=QUICK)
    assert problem.support.classes == ("blue", "dark green", "red")
    assert small.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    colours = small.squares.float().mean(dim=(2, 3))  # (N 3): red is the largest where the label says so
    assert colours.argmax(dim=1)[small.labels == 2].tolist() == [0] * 3
    assert colours.argmax(dim=1)[small.labels == 0].tolist() == [2] * 3
    assert torch.equal(fog.squares, Corruption.parse("fog:3")(home.squares, seed=0))
    assert torch.equal(fog.labels, home.labels)


def test_a_method_learns_once_for_all_domains(solver, folder, others, monkeypatch):
    calls, real = [], STUDY_METHODS["lpp"]

    def learn(*args):
        calls.append(args)
        return real.learn(*args)

    counted = StudyMethod("lpp", learn, real.facts)
    monkeypatch.setattr("studies.transfer.find_method", lambda _: counted)
    ledger = Ledger()
    run(solver, folder, others, ledger, methods=("lpp",))
    assert len(calls) == 1
    found = run(solver, folder, others, ledger, methods=("lpp",), damages=("fog:3", "snow:1"))
    assert len(calls) == 2
    assert [row.domain for row, fresh in found if fresh] == ["snow:1"], "the others are known"


def test_at_home_a_method_says_what_it_says_of_the_problem(solver, folder, rows):
    problem = draw_problem(folder, solver.engine.backbone.preprocessing, settings=QUICK.draws(), seed=0)
    for name in QUICK.methods:
        (row,) = [row for row in rows if row.method == name and row.at_home]
        assert row.accuracy == STUDY_METHODS[name].solve(solver, problem).accuracy(problem.labels), name


def test_a_second_run_computes_nothing_and_tells_the_same(solver, folder, others, ledger, rows, monkeypatch):
    monkeypatch.setattr(Solver, "text", None)
    again = run(solver, folder, others, Ledger(ledger.path))
    assert [row for row, _ in again] == rows
    assert not any(fresh for _, fresh in again)


def test_a_folder_without_the_classes_is_not_asked_and_refused_where_no_source_fits(folder, others, tmp_path):
    require_matching_classes({"colours": folder}, others)
    strange = write_pictures(tmp_path / "strange", {"red": 2, "grey": 2})
    with pytest.raises(EvalError, match=r"strange lacks classes of each source \(colours\)"):
        require_matching_classes({"colours": folder}, {**others, "strange": strange})


def test_settings_are_checked_when_built():
    assert TransferSettings().methods == COMPARED
    assert TransferSettings().budget() is None
    assert TransferSettings(steps=3).budget() == FewShotConfig(steps=3)
    assert {"auto", "atlas", "tip", "lpp", "linear-probe", "finetune"} <= set(COMPARED)
    for wrong, sentence in (
        ({"damages": ("fogg:3",)}, "Did you mean 'fog'"),
        ({"damages": ("fog",)}, "needs a severity"),
        ({"methods": ()}, "methods is empty"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            TransferSettings(**wrong)


def test_a_row_is_plain_json(rows):
    assert TransferRow(**json.loads(json.dumps(rows[0].as_dict()))) == rows[0]
