"""One domain to learn from, others to be asked about: the same model, and nothing seen beforehand."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from atlas_engine.adapt.settings import FewShotConfig
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
    transfer_grid,
    transfer_tables,
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
    assert [row.is_on_source for row in rows[:4]] == [True, False, False, False]
    assert {row.shots for row in rows} == {2}
    assert all(row.n_test == 9 and 0 <= row.accuracy <= 1 for row in rows)


def test_another_domain_has_the_sources_classes_with_the_sources_numbers(tiny, folder, others):
    shape = tiny.backbone.preprocessing
    problem = draw_problem(folder, shape, settings=QUICK.draws(), seed=0)
    home, small, fog, _ = draw_domains("colours", folder, problem, others, shape=shape, settings=QUICK)
    assert problem.support.classes == ("blue", "dark green", "red")
    assert small.labels.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    colours = small.pixels.float().mean(dim=(2, 3))  # (N 3): red is the largest where the label says so
    assert colours.argmax(dim=1)[small.labels == 2].tolist() == [0] * 3
    assert colours.argmax(dim=1)[small.labels == 0].tolist() == [2] * 3
    assert torch.equal(fog.pixels, Corruption.parse("fog:3")(home.pixels, seed=0))
    assert torch.equal(fog.labels, home.labels)


def test_a_method_learns_once_for_all_domains(solver, folder, others, monkeypatch):
    calls, real = [], STUDY_METHODS["lpp"]

    def learn(*args):
        calls.append(args)
        return real.learn(*args)

    counted = StudyMethod("lpp", learn, real.facts)
    monkeypatch.setattr("studies.transfer.find_study_method", lambda _: counted)
    ledger = Ledger()
    run(solver, folder, others, ledger, methods=("lpp",))
    assert len(calls) == 1
    found = run(solver, folder, others, ledger, methods=("lpp",), damages=("fog:3", "snow:1"))
    assert len(calls) == 2
    assert [row.domain for row, fresh in found if fresh] == ["snow:1"], "the others are known"


def test_at_home_a_method_answers_as_it_does_for_the_problem(solver, folder, rows):
    problem = draw_problem(folder, solver.engine.backbone.preprocessing, settings=QUICK.draws(), seed=0)
    for name in QUICK.methods:
        (row,) = [row for row in rows if row.method == name and row.is_on_source]
        assert row.accuracy == STUDY_METHODS[name].solve(solver, problem).accuracy(problem.labels), name


def test_a_second_run_computes_nothing_and_gives_the_same_rows(
    solver, folder, others, ledger, rows, monkeypatch
):
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


# ---- the report, by numbers worked out by hand


def transfer_row(method, domain, accuracy, seed=0, source="photo"):
    return TransferRow(source, domain, method, 16, seed, accuracy, 70, 1.0, False)


ROWS = [
    transfer_row("zero-shot", "photo", 0.8),
    transfer_row("zero-shot", "sketch", 0.5),
    transfer_row("zero-shot", "fog:3", 0.6),
    transfer_row("lpp", "photo", 0.9),
    transfer_row("lpp", "sketch", 0.4),
    transfer_row("lpp", "fog:3", 0.6),
    transfer_row("atlas", "photo", 0.85),
    transfer_row("atlas", "sketch", 0.5),
    transfer_row("atlas", "fog:3", 0.63),
]


def test_what_is_lost_away_is_the_gain_at_home_less_the_gain_away():
    loss, photo = transfer_tables(ROWS)
    assert loss.rows == [
        ("lpp", "+10.0", "-10.0", "+0.0", "-5.0", "15.0", "1 of 2"),
        ("atlas", "+5.0", "+0.0", "+3.0", "+1.5", "3.5", "0 of 2"),
    ]
    assert photo.columns == ("method", "photo", "sketch", "fog:3")
    assert photo.rows[2] == ("atlas", "85.0", "50.0", "63.0")


def test_without_zero_shot_there_are_accuracies_alone():
    rows = [row for row in ROWS if row.method == "lpp"]
    (photo,) = transfer_tables(rows)
    assert photo.rows == [("lpp", "90.0", "40.0", "60.0")]
    assert transfer_grid(rows).values == ((90.0, 40.0, 60.0),)


def test_zero_shot_alone_has_nothing_to_lose():
    (photo,) = transfer_tables([row for row in ROWS if row.method == "zero-shot"])
    assert photo.rows == [("zero-shot", "80.0", "50.0", "60.0")]


def test_the_grid_of_domains_has_home_first_and_gains():
    grid = transfer_grid(ROWS)
    assert (grid.rows, grid.columns) == (("lpp", "atlas"), ("photo (home)", "sketch", "fog:3"))
    assert grid.values[0] == pytest.approx((10.0, -10.0, 0.0))


def test_the_spread_is_over_seeds():
    more = [transfer_row(r.method, r.domain, r.accuracy + (r.method == "lpp") * 0.02, seed=1) for r in ROWS]
    loss, _ = transfer_tables([*ROWS, *more])
    assert loss.rows[0][1] == "+11.0 ± 1.4"
    assert loss.rows[0][5] == "15.0 ± 0.0", "two points more everywhere lose no more"


def test_a_folder_with_a_colon_in_its_name_is_another_style_and_no_damage():
    rows = [
        transfer_row(method, domain, 0.5)
        for method in ("zero-shot", "lpp")
        for domain in ("photo", "art:old")
    ]
    line = dict(zip(transfer_tables(rows)[0].columns, transfer_tables(rows)[0].rows[0], strict=True))
    assert (line["other style"], line["damaged"]) == ("+0.0", "–")
