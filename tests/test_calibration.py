"""A temperature that finds the true scale of logits, and a threshold that keeps what it promises."""

from __future__ import annotations

import math

import pytest
import torch

from atlas_engine.calibration import Calibration, calibrate, fit_temperature, fit_threshold
from atlas_engine.class_names import NONE_OF_THESE
from atlas_engine.errors import ConfigError, EvalError
from atlas_engine.predictions import join_predictions, predictions_from_logits

SEEDED = torch.Generator().manual_seed(0)
LOGITS = 2 * torch.randn(4000, 5, generator=SEEDED)
LABELS = torch.multinomial(LOGITS.softmax(dim=1), 1, generator=SEEDED).squeeze(1)  # the logits are true


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_the_temperature_undoes_a_wrong_scale_of_the_logits(factor):
    found = fit_temperature(factor * LOGITS, LABELS)
    assert found == pytest.approx(factor, rel=0.06)  # 4000 images, and candidates 2.3 % apart


def test_few_images_that_are_all_right_do_not_make_the_model_certain():
    logits = torch.tensor([[3.0, 0.0]] * 4 + [[0.0, 3.0]] * 4)
    labels = torch.tensor([0] * 4 + [1] * 4)
    assert 0.9 < fit_temperature(logits, labels) <= 1.0
    assert fit_temperature(logits.repeat(500, 1), labels.repeat(500)) < 0.6


def test_calibrating_never_changes_the_ranking():
    for temperature in (0.1, 1.0, 9.0):
        probs = Calibration(temperature).probs(LOGITS)
        assert torch.equal(probs.argsort(dim=1), LOGITS.argsort(dim=1))
    assert torch.equal(Calibration().probs(LOGITS), LOGITS.softmax(dim=1))  # bit for bit


def test_the_threshold_keeps_the_share_of_new_images_that_it_promises():
    seeded, kept = torch.Generator().manual_seed(1), []
    for _ in range(400):
        scores = torch.randn(40, generator=seeded)
        threshold, promised = fit_threshold(scores[:39], kept_share=0.9)
        assert promised == pytest.approx(0.9)
        kept.append(float(scores[39] >= threshold))
    assert sum(kept) / len(kept) == pytest.approx(0.9, abs=0.05)  # three deviations of 400 draws


def test_few_images_promise_less():
    assert fit_threshold(torch.arange(9.0), kept_share=0.95) == (0.0, pytest.approx(0.9))
    assert fit_threshold(torch.arange(19.0), kept_share=0.95) == (0.0, pytest.approx(0.95))
    assert fit_threshold(torch.arange(39.0), kept_share=0.95) == (1.0, pytest.approx(0.95))


def test_an_image_below_the_threshold_is_none_of_the_classes():
    found = Calibration(2.0, reject_below=1.0, kept_share=0.9)
    logits = torch.tensor([[0.9, 0.0], [1.1, 0.0]])
    assert found.rejects(logits).tolist() == [True, False]
    predictions = predictions_from_logits(("a", "b"), ("cat", "dog"), logits, calibration=found)
    assert predictions.rejected == (True, False)
    assert predictions.labels == ("cat", "cat")
    assert predictions.answers == (NONE_OF_THESE, "cat")
    assert [row["none_of_these"] for row in predictions.as_rows()] == [True, False]
    first, second = predictions.as_text().splitlines()
    assert first.startswith("a  none of these (cat ")
    assert second.startswith("b  cat ")
    assert join_predictions([predictions, predictions]).rejected == (True, False) * 2


def test_without_a_threshold_nothing_is_rejected_and_rows_are_as_before():
    predictions = predictions_from_logits(("a",), ("cat", "dog"), torch.tensor([[-9.0, -8.0]]))
    assert predictions.rejected is None
    assert predictions.answers == ("dog",)
    assert set(predictions.as_rows()[0]) == {"image", "label", "prob", "top"}
    assert join_predictions([predictions]).rejected is None


def test_a_class_of_negatives_rejects_by_its_name():
    logits = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    predictions = predictions_from_logits(("a", "b"), ("cat", NONE_OF_THESE), logits)
    assert predictions.rejected == (True, False)
    assert predictions.as_text().startswith("a  none of these 73%")


def test_a_temperature_that_is_given_stays():
    found = calibrate(3 * LOGITS, LABELS, temperature=1.0)
    assert found.temperature == 1.0
    assert found.reject_below is not None


@pytest.mark.parametrize(
    "values",
    [{"temperature": 0.0}, {"temperature": math.nan}, {"reject_below": math.inf}, {"kept_share": 1.5}],
)
def test_a_calibration_of_impossible_numbers_is_refused(values):
    with pytest.raises(ConfigError, match="must be"):
        Calibration(**values)


def test_nothing_held_out_is_an_error_that_says_so():
    with pytest.raises(EvalError, match="no held-out image"):
        calibrate(torch.empty(0, 3), torch.empty(0, dtype=torch.long))
    with pytest.raises(ConfigError, match="kept_share is 1"):
        fit_threshold(torch.ones(3), kept_share=1.0)
