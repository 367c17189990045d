"""Comparisons: which images were fixed or broken, which classes are confused, how calibrated models are."""

from __future__ import annotations

import json

import pytest
import torch

from atlas_engine.errors import ConfigError
from atlas_engine.predictions import Comparison, Predictions
from atlas_engine.views.comparison import calibration, changes, confusion_grid
from atlas_engine.views.heatmap import as_text

CLASSES = ("otter", "seal", "whale")


def predicted(*answers):
    """Predictions from pairs of a class and its probability; the rest is shared by the others."""
    probs = torch.zeros(len(answers), 3)
    for row, (label, prob) in enumerate(answers):
        probs[row] = (1 - prob) / 2
        probs[row, CLASSES.index(label)] = prob
    return Predictions(tuple(f"{i}.jpg" for i in range(len(answers))), CLASSES, probs)


BEFORE = predicted(("seal", 0.6), ("otter", 0.9), ("otter", 0.5), ("whale", 0.7), ("seal", 0.8))
AFTER = predicted(("otter", 0.8), ("seal", 0.6), ("seal", 0.9), ("whale", 0.9), ("otter", 0.7))
TRUTH = ("otter", "otter", "whale", "whale", None)


def test_images_that_changed_are_fixed_broken_or_neither():
    found = changes(Comparison(BEFORE, AFTER), TRUTH)
    assert [(one.image, one.what, one.truth) for one in found] == [
        ("0.jpg", "fixed", "otter"),
        ("1.jpg", "broken", "otter"),
        ("2.jpg", "changed", "whale"),
        ("4.jpg", "changed", None),
    ]
    first = found[0]
    assert (first.zero_shot.label, first.adapted.label, first.index) == ("seal", "otter", 0)
    assert first.adapted.prob == pytest.approx(0.8)


def test_without_the_truth_every_change_is_just_a_change():
    assert {one.what for one in changes(Comparison(BEFORE, AFTER))} == {"changed"}
    assert changes(Comparison(BEFORE, BEFORE), TRUTH) == ()


def test_a_change_is_plain_json():
    row = json.loads(json.dumps(changes(Comparison(BEFORE, AFTER), TRUTH)[1].as_dict()))
    assert row["zero_shot"] == {"label": "otter", "prob": pytest.approx(0.9)}
    assert row["what"] == "broken"


def test_a_confusion_matrix_counts_the_images_whose_class_is_known():
    grid = confusion_grid(TRUTH, AFTER)
    assert grid.rows == grid.columns == CLASSES
    assert grid.values == ((1.0, 1.0, 0.0), (None, None, None), (0.0, 1.0, 1.0))
    assert "2 of 4 are wrong" in grid.about
    assert as_text(grid).splitlines()[1].split() == ["otter", "1", "1", "0"]


def test_calibration_is_the_mean_gap_between_promise_and_truth():
    found = calibration(
        ("otter", "seal", "whale", "whale"), predicted(*[("otter", 0.95)] * 2, *[("whale", 0.55)] * 2)
    )
    assert [(one.images, one.accuracy) for one in found.bins] == [(2, 1.0), (2, 0.5)]
    assert [one.confidence for one in found.bins] == pytest.approx([0.55, 0.95])
    assert found.error == pytest.approx((2 * 0.45 + 2 * 0.45) / 4)
    assert (found.images, found.bins[0].low, found.bins[0].high) == (4, 0.5, 0.6)
    assert json.loads(json.dumps(found.as_dict()))["images"] == 4


def test_a_model_that_is_as_right_as_it_says_has_no_calibration_error():
    right = calibration(("otter",) * 4, predicted(*[("otter", 1.0)] * 4))
    assert right.error == 0
    assert right.bins[-1].high == 1.0
    half = calibration(("otter", "seal"), predicted(("otter", 0.5), ("otter", 0.5)), bins=1)
    assert half.error == pytest.approx(0)


def test_images_of_unknown_class_do_not_count_for_calibration():
    alone, together = predicted(("otter", 0.8)), predicted(("otter", 0.8), ("seal", 0.9))
    assert calibration(("otter",), alone) == calibration(("otter", None), together)


@pytest.mark.parametrize(
    ("truth", "sentence"),
    [
        (("otter",), "there are 1 true classes for 5 images"),
        ((None,) * 5, "of no image the true class is known"),
        (("oter", *TRUTH[1:]), "Did you mean 'otter'"),
    ],
)
def test_a_truth_that_does_not_fit_is_refused(truth, sentence):
    with pytest.raises(ConfigError, match=sentence):
        confusion_grid(truth, AFTER)
    with pytest.raises(ConfigError, match=sentence):
        calibration(truth, AFTER)


def test_a_comparison_needs_the_truth_of_every_image_and_a_bin():
    with pytest.raises(ConfigError, match="2 true classes for 5 images"):
        changes(Comparison(BEFORE, AFTER), ("otter", None))
    with pytest.raises(ConfigError, match="bins=0"):
        calibration(TRUTH, AFTER, bins=0)
