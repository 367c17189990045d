"""A learning curve that follows a known power law, and advice that says so."""

from __future__ import annotations

import math

import pytest

from atlas_engine.adapt import advice as advice_module
from atlas_engine.adapt.advice import PowerLaw, advise, fit_power_law
from tests.heads.synthetic import make_support

LAW = PowerLaw(4.0, math.log(0.2), 0.1, 0.5, 0.1)


def test_four_times_the_images_halve_the_error_at_a_slope_of_one_half():
    assert LAW.at(4).accuracy == pytest.approx(0.8)
    assert LAW.at(16).accuracy == pytest.approx(0.9)


def test_the_interval_widens_with_the_distance():
    near, far = LAW.at(5), LAW.at(40)
    assert near.low < near.accuracy < near.high < 1

    def width(point):
        return math.log(1 - point.low) - math.log(1 - point.high)

    assert width(near) < width(far)
    assert width(LAW.at(4)) == pytest.approx(2 * 1.96 * 0.1, rel=1e-3)


def test_more_images_held_out_leave_less_doubt():
    support, _ = make_support((8,) * 5, spread=1.2)
    few, many = (fit_power_law(support, right=8 * n, count=10 * n, folds=4) for n in (1, 20))
    assert many.log_error_deviation < few.log_error_deviation
    assert many.slope_deviation < few.slope_deviation
    assert few.images == pytest.approx(8 * 0.75)


def test_without_sub_samples_the_usual_slope_is_taken():
    law = fit_power_law(make_support((1,) * 5)[0], right=3, count=5, folds=2)
    assert (law.slope, law.slope_deviation) == (advice_module.USUAL_SLOPE, advice_module.SLOPE_SPREAD)


def test_an_error_that_falls_with_images_asks_for_more():
    support, _ = make_support((6,) * 5, spread=1.2, text_noise=2.0)
    found = advise(support, right=20, count=30, folds=4)
    assert found.enough is False
    assert found.then.accuracy - found.now.accuracy >= 0.03
    assert found.sentence.startswith(f"About {found.more_per_class} more image")
    accuracies = [point.accuracy for point in found.curve]
    assert accuracies == sorted(accuracies)
    assert found.curve[0].images_per_class == 6


def test_where_nothing_is_wrong_it_is_enough():
    support, _ = make_support((16,) * 5, spread=0.2)
    found = advise(support, right=80, count=80, folds=4)
    assert found.enough is True
    assert found.sentence.startswith("This is enough: 16 more images a class")


def test_where_zero_shot_was_kept_the_curve_does_not_fall_below_it():
    support, _ = make_support((6,) * 5, spread=1.2, text_noise=2.0)
    found = advise(support, right=15, count=30, folds=4, zero_shot_accuracy=0.7)
    assert found.now.accuracy == 0.7
    assert all(point.low <= point.accuracy <= point.high for point in found.curve)


def test_nothing_held_out_is_said():
    found = advise(make_support((1,) * 5)[0], right=0, count=0, folds=0)
    assert found.enough is None
    assert found.curve == ()
    assert "Add a second image" in found.sentence


def test_the_same_call_gives_the_same_advice():
    support, _ = make_support((6,) * 5, spread=1.2)
    assert advise(support, right=20, count=30, folds=4) == advise(support, right=20, count=30, folds=4)
