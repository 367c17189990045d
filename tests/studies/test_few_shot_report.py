"""Tables of few-shot methods, by numbers worked out by hand."""

from __future__ import annotations

import pytest

from studies.few_shot import FewShotRow, calibration_table, few_shot_grid, few_shot_tables


def row(dataset, method, shots, seed, accuracy, **more):
    return FewShotRow(dataset, method, shots, seed, accuracy, 100, more.pop("seconds", 1.0), **_with(more))


def _with(more):
    return {"fell_back": False} | more


ZERO = [row(name, "zero-shot", 4, seed, 0.4) for seed in (0, 1) for name in ("pets", "plants")]
TIP = [
    row("pets", "tip", 4, 0, 0.5),
    row("plants", "tip", 4, 0, 0.7, seconds=3.0),
    row("pets", "tip", 4, 1, 0.6, fell_back=True),
    row("plants", "tip", 4, 1, 0.6, seconds=2.0),
]


def of(sheets, start):
    (sheet,) = [sheet for sheet in sheets if sheet.title.startswith(start)]
    return {line[0]: line[1:] for line in sheet.rows}


def test_means_are_over_data_sets_within_each_seed_and_then_over_seeds():
    sheets = few_shot_tables([*ZERO, *TIP])
    assert of(sheets, "Accuracy in %, mean over 2") == {
        "zero-shot": ("40.0 ± 0.0",),
        "tip": ("60.0 ± 0.0",),
    }
    assert of(sheets, "Difference to zero-shot")["tip"] == ("+20.0 ± 0.0",)


def test_each_data_set_has_its_own_table():
    sheets = few_shot_tables([*ZERO, *TIP])
    assert of(sheets, "pets:")["tip"] == ("55.0 ± 7.1 (+15.0)",)
    assert of(sheets, "plants:")["tip"] == ("65.0 ± 7.1 (+25.0)",)
    (alone, *_) = few_shot_tables([one for one in [*ZERO, *TIP] if one.dataset == "pets"])
    assert alone.title == "Accuracy in %, pets"


def test_costs_tell_the_median_and_how_often_a_method_fell_back():
    assert of(few_shot_tables([*ZERO, *TIP]), "Seconds")["tip"] == ("1.5, fell back 1 of 4",)


def test_without_zero_shot_there_is_no_difference():
    sheets = few_shot_tables(TIP)
    assert not [sheet for sheet in sheets if "Difference" in sheet.title]
    assert of(sheets, "pets:")["tip"] == ("55.0 ± 7.1",)
    grid = few_shot_grid(TIP)
    assert grid.values[0] == pytest.approx((60.0,))
    assert grid.shown(60.0) == "60.0"


def test_the_figure_shows_points_above_zero_shot():
    grid = few_shot_grid([*ZERO, *TIP, row("pets", "zero-shot", 1, 0, 0.4), row("pets", "tip", 1, 0, 0.3)])
    assert (grid.rows, grid.columns) == (("tip",), ("k = 1", "k = 4"))
    assert grid.values[0] == pytest.approx((-10.0, 20.0))
    assert "above zero-shot" in grid.about
    assert few_shot_grid(ZERO).rows == ("zero-shot",)


def test_calibration_compares_what_was_expected_with_what_came():
    def auto(accuracy, estimate, low, high, shots=4):
        numbers = {"estimate": estimate, "estimate_low": low, "estimate_high": high}
        return row("pets", "auto", shots, 0, accuracy, **numbers)

    rows = [auto(0.5, 0.7, 0.6, 0.8), auto(0.6, 0.6, 0.4, 0.8), auto(1.0, 1.0, 0.9, 1.0, shots=16), *ZERO]
    assert calibration_table(rows).rows == [
        ("auto", 4, 2, 65.0, 55.0, 10.0, 50.0),
        ("auto", 16, 1, 100.0, 100.0, 0.0, 100.0),
    ]
    assert calibration_table(ZERO) is None
    assert few_shot_tables(rows[3:])[-1].title.startswith("Seconds")


def test_an_estimate_of_nothing_right_is_an_estimate():
    zero = row("pets", "auto", 1, 0, 0.0, estimate=0.0, estimate_low=0.0, estimate_high=0.2)
    assert calibration_table([zero]).rows == [("auto", 1, 1, 0.0, 0.0, 0.0, 100.0)]
