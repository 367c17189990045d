"""The grid of methods, data sets, shots and seeds: fair, complete, and never measured twice."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from atlas_engine.errors import ConfigError, SupportError
from studies.few_shot import (
    RANDOM,
    FewShotRow,
    FewShotStudySettings,
    calibration_table,
    control_table,
    count_rows,
    few_shot_grid,
    few_shot_tables,
    require_enough_images,
    run_few_shot,
)
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


def without_seconds(rows):
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


def test_zero_shot_does_not_know_the_shots_so_test_images_are_the_same(rows):
    for dataset in ("colours", "two"):
        for seed in (0, 1):
            own = [r for r in rows if (r.dataset, r.seed, r.method) == (dataset, seed, "zero-shot")]
            assert len({row.accuracy for row in own}) == 1


def test_fewer_shots_are_the_first_of_more(tiny, folder):
    whole = draw_problem(folder, tiny.backbone.preprocessing, settings=GRID.draws(folder), seed=0)
    one = with_shots(whole, 1)
    assert (whole.support.counts, one.support.counts) == ((3, 3, 3), (1, 1, 1))
    assert one.support.classes == whole.support.classes
    assert [image.name for image in one.support.images] == [
        whole.support.images[position].name for position in (0, 3, 6)
    ]
    assert torch.equal(one.pixels, whole.pixels)
    assert one.digest != whole.digest
    assert with_shots(whole, 3).digest == whole.digest


def test_fewer_shots_of_a_larger_drawing_are_the_same_problems(tiny, folder, tmp_path):
    ledger = Ledger(tmp_path / "rows")
    run(tiny, {"colours": folder}, ledger, seeds=1, methods=("zero-shot", "lpp"))
    fewer = run(
        tiny, {"colours": folder}, Ledger(ledger.path), seeds=1, methods=("lpp",), shots=(1,), drawn_shots=3
    )
    assert [(row.shots, fresh) for row, fresh in fewer] == [(1, False)]
    with pytest.raises(ConfigError, match="drawn_shots is 2 but shots go up to 3"):
        dataclasses.replace(GRID, drawn_shots=2)


def test_without_limits_every_class_and_image_is_used(tiny, tmp_path):
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


def test_a_second_run_computes_nothing_and_gives_the_same_rows(tiny, folders, ledger, rows, monkeypatch):
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
    assert without_seconds(row for row, _ in rest) == without_seconds(rows)


def test_a_new_method_or_seed_measures_only_itself(tiny, folders, ledger, rows):
    more = run(tiny, folders, Ledger(ledger.path), methods=("tip", "zero-shot"), seeds=1)
    assert [fresh for _, fresh in more] == [True, False] * 4
    renamed = run(tiny, {"other name": folders["two"]}, Ledger(ledger.path), seeds=1)
    assert {(row.dataset, fresh) for row, fresh in renamed} == {("other name", False)}


def test_another_budget_measures_again_what_trains(tiny, folders, ledger, rows):
    found = run(tiny, folders, Ledger(ledger.path), steps=3, seeds=1)
    assert {row.method for row, fresh in found if fresh} == {"lora"}


def test_every_start_is_announced(tiny, folder):
    notes = []
    settings = dataclasses.replace(GRID, shots=(1,), methods=("zero-shot", "tip"), seeds=1)
    list(run_few_shot(Solver(tiny), {"c": folder}, settings=settings, ledger=Ledger(), on_start=notes.append))
    assert notes == ["c, reading", "c, 1 shot(s), zero-shot", "c, 1 shot(s), tip"]


def test_settings_are_in_order_and_without_repetition():
    settings = FewShotStudySettings(shots=(4, 1, 4), methods=("tip", "zero-shot", "tip"))
    assert (settings.shots, settings.methods) == ((1, 4), ("tip", "zero-shot"))
    assert FewShotStudySettings().methods == tuple(STUDY_METHODS)
    chosen = {"batch": 8, "lr": 0.1, "epochs": 2, "share": 1.0}
    budget = FewShotStudySettings(**chosen).budget()
    assert {name: getattr(budget, name) for name in chosen} == chosen
    assert FewShotStudySettings().budget() is None, "the product decides"
    assert FewShotStudySettings(steps=7).budget().steps == 7
    for wrong, sentence in (
        ({"shots": ()}, "shots is empty"),
        ({"shots": (0,)}, "at least 1"),
        ({"methods": ("lppp",)}, "Did you mean 'lpp'"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            FewShotStudySettings(**wrong)


def test_a_class_that_is_too_small_is_named_before_anything_is_measured(folders):
    require_enough_images(folders, GRID)
    with pytest.raises(SupportError, match=r"two: class 'dark_green' has 6 image\(s\), but 8 .* Add 3"):
        require_enough_images(folders, dataclasses.replace(GRID, shots=(1, 8)))


# ---- the report, by numbers worked out by hand


def fake_row(dataset, method, shots, seed, accuracy, **more):
    return FewShotRow(dataset, method, shots, seed, accuracy, 100, more.pop("seconds", 1.0), **_with(more))


def _with(more):
    return {"fell_back": False} | more


ZERO = [fake_row(name, "zero-shot", 4, seed, 0.4) for seed in (0, 1) for name in ("pets", "plants")]
TIP = [
    fake_row("pets", "tip", 4, 0, 0.5),
    fake_row("plants", "tip", 4, 0, 0.7, seconds=3.0),
    fake_row("pets", "tip", 4, 1, 0.6, fell_back=True),
    fake_row("plants", "tip", 4, 1, 0.6, seconds=2.0),
]


def table_of(tables, start):
    (table,) = [table for table in tables if table.title.startswith(start)]
    return {line[0]: line[1:] for line in table.rows}


def test_means_are_over_data_sets_within_each_seed_and_then_over_seeds():
    tables = few_shot_tables([*ZERO, *TIP])
    assert table_of(tables, "Accuracy in %, mean over 2") == {
        "zero-shot": ("40.0 ± 0.0",),
        "tip": ("60.0 ± 0.0",),
    }
    assert table_of(tables, "Difference to zero-shot")["tip"] == ("+20.0 ± 0.0",)


def test_each_data_set_has_its_own_table():
    tables = few_shot_tables([*ZERO, *TIP])
    assert table_of(tables, "pets:")["tip"] == ("55.0 ± 7.1 (+15.0)",)
    assert table_of(tables, "plants:")["tip"] == ("65.0 ± 7.1 (+25.0)",)
    (alone, *_) = few_shot_tables([one for one in [*ZERO, *TIP] if one.dataset == "pets"])
    assert alone.title == "Accuracy in %, pets"


def test_costs_are_the_median_and_how_often_a_method_fell_back():
    assert table_of(few_shot_tables([*ZERO, *TIP]), "Seconds")["tip"] == ("1.5, fell back 1 of 4",)


def test_without_zero_shot_there_is_no_difference():
    tables = few_shot_tables(TIP)
    assert not [table for table in tables if "Difference" in table.title]
    assert table_of(tables, "pets:")["tip"] == ("55.0 ± 7.1",)
    grid = few_shot_grid(TIP)
    assert grid.values[0] == pytest.approx((60.0,))
    assert grid.format_value(60.0) == "60.0"


def test_the_figure_shows_points_above_zero_shot():
    grid = few_shot_grid(
        [*ZERO, *TIP, fake_row("pets", "zero-shot", 1, 0, 0.4), fake_row("pets", "tip", 1, 0, 0.3)]
    )
    assert (grid.rows, grid.columns) == (("tip",), ("k = 1", "k = 4"))
    assert grid.values[0] == pytest.approx((-10.0, 20.0))
    assert "above zero-shot" in grid.about
    assert few_shot_grid(ZERO).rows == ("zero-shot",)


def test_calibration_compares_what_was_expected_with_what_came():
    def auto(accuracy, estimate, low, high, shots=4):
        numbers = {"estimate": estimate, "estimate_low": low, "estimate_high": high}
        return fake_row("pets", "auto", shots, 0, accuracy, **numbers)

    rows = [auto(0.5, 0.7, 0.6, 0.8), auto(0.6, 0.6, 0.4, 0.8), auto(1.0, 1.0, 0.9, 1.0, shots=16), *ZERO]
    assert calibration_table(rows).rows == [
        ("auto", 4, 2, 65.0, 55.0, 10.0, 50.0),
        ("auto", 16, 1, 100.0, 100.0, 0.0, 100.0),
    ]
    assert calibration_table(ZERO) is None
    assert few_shot_tables(rows[3:])[-1].title.startswith("Seconds")


def test_an_estimate_of_nothing_right_is_an_estimate():
    zero = fake_row("pets", "auto", 1, 0, 0.0, estimate=0.0, estimate_low=0.0, estimate_high=0.2)
    assert calibration_table([zero]).rows == [("auto", 1, 1, 0.0, 0.0, 0.0, 100.0)]


CONTROLLED = FewShotStudySettings(
    shots=(2,), seeds=1, methods=("lpp", "atlas"), max_test=12, steps=4, batch=4, control=True
)


def test_what_mixes_task_vectors_is_measured_with_a_random_bank_too(tiny, bank, folder):
    solver = Solver(tiny, bank=bank, config=CONTROLLED.budget())
    ledger = Ledger()
    found = run_few_shot(solver, {"colours": folder}, settings=CONTROLLED, ledger=ledger)
    rows = [row for row, _ in found]
    assert len(ledger) == 3, "the random bank's row has a key of its own"
    assert [row.method for row in rows] == ["lpp", "atlas", "atlas" + RANDOM]
    assert len(rows) == count_rows(CONTROLLED, folders=1)
    real, control = rows[1:]
    table = control_table(rows)
    assert table is not None
    assert table.rows == [("atlas", f"{100 * (real.accuracy - control.accuracy):+.1f}")]
    assert control_table(rows[:2]) is None


def test_a_folder_is_measured_without_its_own_vector_where_that_is_asked_for(tiny, bank, folder):
    settings = dataclasses.replace(CONTROLLED, methods=("atlas",), control=False, leave_own_out=True)
    solver = Solver(tiny, bank=bank, config=settings.budget())
    (row,) = [row for row, _ in run_few_shot(solver, {"x": folder}, settings=settings, ledger=Ledger())]
    other = Solver(tiny, bank=bank.without(["colours"]), config=settings.budget())
    plain = dataclasses.replace(settings, leave_own_out=False)
    (expected,) = [row for row, _ in run_few_shot(other, {"x": folder}, settings=plain, ledger=Ledger())]
    assert without_seconds([row]) == without_seconds([expected])


def test_the_lead_of_auto_stands_beside_every_other_method():
    rows = [
        FewShotRow(dataset, method, 4, 0, accuracy, 10, 0.0, fell_back=False)
        for dataset, first, second in (("a", 0.5, 0.6), ("b", 0.5, 0.8))
        for method, accuracy in (("tip", first), ("auto", second))
    ]
    (lead,) = [one for one in few_shot_tables(rows) if one.title.startswith("`auto` above")]
    assert lead.rows == [("tip", "+20.0 ± 10.0")]
