"""Accuracy on labelled folders."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.errors import EvalError
from atlas_engine.heads.cross_validation import wilson_interval
from studies.zero_shot import engine_logits, zero_shot
from tests.drawn import write_pictures


@pytest.fixture
def folder(tmp_path):
    return write_pictures(tmp_path / "colours", {"red": 3, "blue": 2, "dark_green": 2})


def test_accuracy_counts_the_right_answers(folder):
    def always_first(images, classes):
        return torch.tensor([[1.0, 0.0, 0.0]]).repeat(len(images), 1)

    row = zero_shot(folder, always_first, method="first")
    share = folder.counts[0] / 7
    assert (row.dataset, row.method, row.n_test) == ("colours", "first", 7)
    assert row.accuracy == pytest.approx(share)
    assert row.low < share < row.high


def test_class_names_are_asked_as_people_write_them(folder):
    asked = []

    def logits_of(images, classes):
        asked.append(classes)
        return torch.zeros(len(images), len(classes))

    zero_shot(folder, logits_of, method="zeros")
    assert asked == [("blue", "dark green", "red")]


def test_an_engine_is_measured_as_it_predicts(engine, folder):
    row = zero_shot(folder, engine_logits(engine), method="zero-shot")
    images = [item.source for item in folder.items]
    labels = torch.tensor([item.label for item in folder.items])
    assert row.accuracy == pytest.approx(engine.predict(images, folder.display_names).accuracy(labels))


def test_wilsons_interval_is_the_textbook_one():
    assert wilson_interval(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-3)
    assert wilson_interval(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)


def test_a_share_of_nothing_is_refused():
    with pytest.raises(EvalError, match="0 of 0"):
        wilson_interval(0, 0)
