"""The grid of methods, data sets, shots and seeds: fair, complete, and never measured twice."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from studies.problems.draw import dataset_names

from atlas_engine.errors import ConfigError, EvalError, SupportError
from studies.few_shot import FewShotStudySettings, require_enough_images, run_few_shot
from studies.grid import Ledger
from studies.methods import STUDY_METHODS, Solver
from studies.problems.few_shot import draw_problem, with_shots
from tests.drawn import write_pictures

GRID = FewShotStudySettings(
    shots=(1, 3), seeds=2, methods=("zero-shot", "lpp", "lora"), max_test=12, steps=2, batch=4
)


@pytest.fixture(scope="module")
def folders(folder, tmp_path_factory):
    other = write_pictures(tmp_path_factory.mktemp("grid") / "two", {"red": 6, "dark_green": 6})
    return {"colours": folder, "two": other}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return Ledger(tmp_path_factory.mktemp("ledger") / "rows")


@pytest.fixture(scope="module")
def rows(tiny, folders, ledger):
    return [row for row, _ in run(tiny, folders, ledger)]


def run(tiny, folders, ledger, **changes):
    settings = dataclasses.replace(GRID, **changes)
    solver = Solver(tiny, config=settings.budget())
    return list(run_few_shot(solver, folders, settings=settings, ledger=ledger))


def timeless(rows):
    return [dataclasses.replace(row, seconds=0.0) for row in rows]


def test_there_is_a_row_for_every_cell_in_the_order_of_work(rows):
    assert [(row.seed, row.dataset, row.shots, row.method) for row in rows] == [
        (seed, dataset, shots, method)
        for seed in (0, 1)
        for dataset in ("colours", "two")
        for shots in (1, 3)
        for method in ("zero-shot", "lpp", "lora")
    ]
    assert {row.n_test for row in rows if row.dataset == "colours"} == {12}
    assert {row.n_test for row in rows if row.dataset == "two"} == {6}, "what three shots of six leave"


def test_a_row_says_what_the_issue_asks_for(rows):
    names = ["dataset", "method", "shots", "seed", "accuracy", "n_test", "seconds", "fell_back"]
    first = rows[0].as_dict()
    assert list(first)[:8] == names
    assert all(0 <= row.accuracy <= 1 and row.seconds >= 0 and row.fell_back is False for row in rows)
    assert first["estimate"] is first["estimate_low"] is first["estimate_high"] is None


def test_zero_shot_does_not_know_the_shots_so_test_pictures_are_the_same(rows):
    for dataset in ("colours", "two"):
        for seed in (0, 1):
            own = [r for r in rows if (r.dataset, r.seed, r.method) == (dataset, seed, "zero-shot")]
            assert len({row.accuracy for row in own}) == 1


def test_fewer_shots_are_the_first_of_more(tiny, folder):
    whole = draw_problem(folder, tiny.backbone.preprocessing, settings=GRID.draws(folder), seed=0)
    one = with_shots(whole, 1)
    assert (whole.support.counts, one.support.counts) == ((3, 3, 3), (1, 1, 1))
    assert one.support.classes == whole.support.classes
    assert [picture.name for picture in one.support.pictures] == [
        whole.support.pictures[place].name for place in (0, 3, 6)
    ]
    assert torch.equal(one.squares, whole.squares)
    assert one.digest != whole.digest
    assert with_shots(whole, 3).digest == whole.digest


def test_without_limits_every_class_and_picture_is_used(tiny, tmp_path):
    folder = write_pictures(tmp_path / "uneven", {"red": 9, "blue": 4})
    settings = FewShotStudySettings(shots=(2,), methods=("zero-shot",), seeds=1)
    ((row, _),) = run_few_shot(Solver(tiny), {"uneven": folder}, settings=settings, ledger=Ledger())
    assert row.n_test == (9 - 2) + (4 - 2)


def test_the_seed_draws_at_most_so_many_classes(tiny, tmp_path):
    folder = write_pictures(tmp_path / "many", {f"class{i}": 3 for i in range(6)})
    settings = dataclasses.replace(GRID, max_classes=4, shots=(1,))
    drawn = [
        draw_problem(folder, tiny.backbone.preprocessing, settings=settings.draws(folder), seed=seed)
        for seed in range(4)
    ]
    assert all(len(problem.support.classes) == 4 for problem in drawn)
    assert len({problem.support.classes for problem in drawn}) > 1


def test_a_second_run_computes_nothing_and_tells_the_same(tiny, folders, ledger, rows, monkeypatch):
    before = ledger.path.read_bytes()
    monkeypatch.setattr(Solver, "text", None)
    again = run(tiny, folders, Ledger(ledger.path))
    assert again == [(row, False) for row in rows]
    assert ledger.path.read_bytes() == before


def test_a_killed_run_goes_on_with_what_is_left(tiny, folders, ledger, rows, tmp_path):
    lines = ledger.path.read_text().splitlines(keepends=True)
    (tmp_path / "rows").write_text("".join(lines[:5]) + lines[5][:30])
    rest = run(tiny, folders, Ledger(tmp_path / "rows"))
    assert [fresh for _, fresh in rest] == [False] * 5 + [True] * 19
    assert timeless(row for row, _ in rest) == timeless(rows)


def test_a_new_method_or_seed_measures_only_itself(tiny, folders, ledger, rows):
    more = run(tiny, folders, Ledger(ledger.path), methods=("tip", "zero-shot"), seeds=1)
    assert [fresh for _, fresh in more] == [True, False] * 4
    renamed = run(tiny, {"other name": folders["two"]}, Ledger(ledger.path), seeds=1)
    assert {(row.dataset, fresh) for row, fresh in renamed} == {("other name", False)}


def test_another_budget_measures_again_what_trains(tiny, folders, ledger, rows):
    found = run(tiny, folders, Ledger(ledger.path), steps=3, seeds=1)
    assert {row.method for row, fresh in found if fresh} == {"lora"}


def test_the_solver_is_told_what_begins(tiny, folder):
    told = []
    settings = dataclasses.replace(GRID, shots=(1,), methods=("zero-shot", "tip"), seeds=1)
    list(run_few_shot(Solver(tiny), {"c": folder}, settings=settings, ledger=Ledger(), on_start=told.append))
    assert told == ["c, reading", "c, 1 shot(s), zero-shot", "c, 1 shot(s), tip"]


def test_settings_are_in_order_and_without_repetition():
    settings = FewShotStudySettings(shots=(4, 1, 4), methods=("tip", "zero-shot", "tip"))
    assert (settings.shots, settings.methods) == ((1, 4), ("tip", "zero-shot"))
    assert FewShotStudySettings().methods == tuple(STUDY_METHODS)
    assert FewShotStudySettings().budget() is None, "the product decides"
    assert FewShotStudySettings(steps=7).budget().steps == 7
    for wrong, sentence in (
        ({"shots": ()}, "shots is empty"),
        ({"shots": (0,)}, "at least 1"),
        ({"methods": ("lppp",)}, "Did you mean 'lpp'"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            FewShotStudySettings(**wrong)


def test_a_name_has_as_much_of_the_path_as_it_needs(tmp_path):
    paths = [tmp_path / "pacs" / "photo", tmp_path / "office" / "photo", tmp_path / "pets"]
    assert dataset_names(paths) == ["pacs/photo", "office/photo", "pets"]
    assert dataset_names(paths[:1]) == ["photo"]
    with pytest.raises(EvalError, match="photo is given twice"):
        dataset_names([paths[0], tmp_path / "office" / ".." / "pacs" / "photo"])


def test_a_class_that_is_too_small_is_named_before_anything_is_measured(folders):
    require_enough_images(folders, GRID)
    with pytest.raises(SupportError, match=r"two: class 'dark_green' has 6 image\(s\), but 8 .* Add 3"):
        require_enough_images(folders, dataclasses.replace(GRID, shots=(1, 8)))
