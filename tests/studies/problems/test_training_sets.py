"""Training sets: shares that grow by adding, classes in their shares, and nothing seen on both sides."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import torch

from studies.problems.training_sets import TrainingSetSettings, draw_training_set
from tests.drawn import write_pictures

SET = TrainingSetSettings(max_train=18, max_test=12)


@pytest.fixture(scope="module")
def drawn(tiny, folder):
    return draw_training_set(folder, tiny.backbone.preprocessing, settings=SET, seed=0)


def test_a_set_is_as_large_as_asked_and_has_every_class_on_both_sides(drawn):
    assert (len(drawn.train), len(drawn.test)) == (18, 12)
    assert drawn.classes == ("blue", "dark green", "red")
    assert set(drawn.train.labels.tolist()) == set(drawn.test.labels.tolist()) == {0, 1, 2}
    assert drawn.train.pixels.shape == (18, 3, 32, 32)


def test_no_image_is_on_both_sides(drawn):
    learned = {image.numpy().tobytes() for image in drawn.train.pixels}
    assert len(learned) == 18
    assert not any(image.numpy().tobytes() in learned for image in drawn.test.pixels)


def test_a_share_has_the_classes_in_about_the_shares_of_the_whole(drawn):
    third = Counter(drawn.train.labels[: drawn.count(100 / 3)].tolist())
    assert sorted(third.values()) == [2, 2, 2]
    assert (drawn.count(100), drawn.count(50), drawn.count(1)) == (18, 9, 1), "one at least"


def test_uneven_classes_keep_their_shares(tiny, tmp_path):
    folder = write_pictures(tmp_path / "uneven", {"red": 30, "blue": 10})
    settings = TrainingSetSettings(max_train=60, max_test=20)
    drawn = draw_training_set(folder, tiny.backbone.preprocessing, settings=settings, seed=3)
    whole = Counter(drawn.train.labels.tolist())
    half = Counter(drawn.train.labels[: drawn.count(50)].tolist())
    assert whole[1] > 2 * whole[0]
    assert all(abs(half[label] - whole[label] / 2) <= 1 for label in (0, 1))


def test_the_seed_decides_and_the_digest_tells(tiny, folder, drawn):
    again, other = (
        draw_training_set(folder, tiny.backbone.preprocessing, settings=SET, seed=seed) for seed in (0, 1)
    )
    assert torch.equal(again.train.pixels, drawn.train.pixels)
    assert again.digest == drawn.digest != other.digest
    swapped = dataclasses.replace(drawn, train=drawn.test, test=drawn.train)
    assert swapped.digest != drawn.digest
