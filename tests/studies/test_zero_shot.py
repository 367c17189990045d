"""Accuracy on labelled folders."""

from __future__ import annotations

import pytest
import torch
from studies.problems.draw import draw_classes, draw_images

from atlas_engine.data.folders import ClassFolder, LabelledFile
from atlas_engine.errors import EvalError
from atlas_engine.heads.cross_validation import wilson_interval
from studies.zero_shot import engine_logits, zero_shot
from tests.drawn import write_pictures


@pytest.fixture
def folder(tmp_path):
    return write_pictures(tmp_path / "colours", {"red": 3, "blue": 2, "dark_green": 2})


def test_accuracy_counts_the_right_answers(folder):
    def always_first(pictures, classes):
        return torch.tensor([[1.0, 0.0, 0.0]]).repeat(len(pictures), 1)

    row = zero_shot(folder, always_first, method="first")
    share = folder.counts[0] / 7
    assert (row.dataset, row.method, row.n_test) == ("colours", "first", 7)
    assert row.accuracy == pytest.approx(share)
    assert row.low < share < row.high


def test_class_names_are_asked_as_people_write_them(folder):
    asked = []

    def logits_of(pictures, classes):
        asked.append(classes)
        return torch.zeros(len(pictures), len(classes))

    zero_shot(folder, logits_of, method="zeros")
    assert asked == [("blue", "dark green", "red")]


def test_an_engine_is_measured_as_it_predicts(engine, folder):
    row = zero_shot(folder, engine_logits(engine), method="zero-shot")
    pictures = [item.source for item in folder.items]
    labels = torch.tensor([item.label for item in folder.items])
    assert row.accuracy == pytest.approx(engine.predict(pictures, folder.pretty).accuracy(labels))


def test_wilsons_interval_is_the_textbook_one():
    assert wilson_interval(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-3)
    assert wilson_interval(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)


def test_a_share_of_nothing_is_refused():
    with pytest.raises(EvalError, match="0 of 0"):
        wilson_interval(0, 0)


def test_drawn_classes_keep_their_pictures_and_the_seed_decides():
    items = tuple(LabelledFile(f"{label}-{n}", label, b"") for label in range(6) for n in range(2))
    folder = ClassFolder("letters", tuple("abcdef"), items)
    drawn = draw_classes(folder, 3, seed=1)
    assert len(drawn.classes) == 3
    assert drawn == draw_classes(folder, 3, seed=1)
    assert {d.classes for d in (draw_classes(folder, 3, seed=s) for s in range(8))} != {drawn.classes}
    for item in drawn.items:
        assert folder.classes[int(item.name[0])] == drawn.classes[item.label]
    assert draw_classes(folder, 6) is folder


def test_drawn_images_keep_their_labels_and_the_seed_decides():
    items = tuple(LabelledFile(str(n), n % 2, b"") for n in range(20))
    folder = ClassFolder("numbers", ("even", "odd"), items)
    drawn = draw_images(folder, 7, seed=3)
    assert len(drawn.items) == 7
    assert drawn == draw_images(folder, 7, seed=3) != draw_images(folder, 7, seed=4)
    assert all(item.label == int(item.name) % 2 for item in drawn.items)
    assert draw_images(folder, 20) is folder
