"""Rolls of images: nested, shared between sizes, few classes where few are asked for, silent about labels."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from atlas_engine.data.image import Image
from studies.corruptions import Corruption
from studies.problems.unlabelled import draw_unlabelled
from tests.drawn import write_pictures


@pytest.fixture(scope="module")
def seven(tmp_path_factory):
    """Seven classes of three to nine images: two of the classes are few."""
    root = tmp_path_factory.mktemp("problems") / "seven"
    return write_pictures(root, {f"class{i}": 3 + i for i in range(7)})


@pytest.fixture(scope="module")
def drawn(tiny, seven):
    return draw_unlabelled(seven, tiny.backbone.preprocessing, seed=0)


def test_a_larger_roll_begins_with_the_smaller_one(drawn):
    for present in ("all", "few"):
        five, eight = drawn.positions(present, 5), drawn.positions(present, 8)
        assert eight[:5] == five
        assert drawn.positions(present)[: len(eight)] == eight
    assert sorted(drawn.positions("all")) == list(range(42))


def test_few_is_about_a_third_of_the_classes_and_all_are_asked_for(drawn):
    few = drawn.positions("few")
    present = set(drawn.labels[few].tolist())
    assert len(present) == 2
    assert len(drawn.problem(few).classes) == 7
    assert few == [row for row in drawn.positions("all") if int(drawn.labels[row]) in present], "same order"


def test_of_two_classes_one_is_few(tiny, tmp_path):
    folder = write_pictures(tmp_path / "two", {"red": 4, "blue": 4})
    drawn = draw_unlabelled(folder, tiny.backbone.preprocessing, seed=1)
    assert len(set(drawn.labels[drawn.positions("few")].tolist())) == 1
    assert len(drawn.positions("few", 20)) == 4, "no more than there are"


def test_the_seed_draws_classes_order_and_few(tiny, seven):
    shape = tiny.backbone.preprocessing
    one, again, other = (draw_unlabelled(seven, shape, max_classes=4, seed=seed) for seed in (0, 0, 1))
    assert one.digest(one.positions("all")) == again.digest(again.positions("all"))
    assert one.classes != other.classes
    assert len(one.classes) == len(other.classes) == 4


def test_only_images_of_the_rolls_are_read(tiny, seven, drawn):
    small = draw_unlabelled(seven, tiny.backbone.preprocessing, max_images=4, seed=0)
    assert 4 <= len(small.labels) <= 8
    for present in ("all", "few"):
        assert torch.equal(
            small.problem(small.positions(present)).pixels, drawn.problem(drawn.positions(present, 4)).pixels
        )
    alone = draw_unlabelled(seven, tiny.backbone.preprocessing, max_images=4, present=("few",), seed=0)
    assert len(alone.labels) == 4


def test_a_roll_tells_nothing_of_the_labels(drawn):
    problem = drawn.problem(drawn.positions("all", 6))
    assert {field.name for field in dataclasses.fields(problem)} == {"classes", "pixels"}
    assert [image.name for image in problem.images] == [f"image {number}" for number in range(1, 7)]
    assert problem.images[2] == Image("another name", problem.pixels[2].permute(1, 2, 0).numpy())


def test_the_order_does_not_depend_on_labels(tiny, seven, drawn):
    wrong = tuple(dataclasses.replace(item, label=(item.label + 1) % 7) for item in seven.items)
    other = draw_unlabelled(dataclasses.replace(seven, items=wrong), tiny.backbone.preprocessing, seed=0)
    assert torch.equal(other.pixels[other.positions("all")], drawn.pixels[drawn.positions("all")])
    assert not torch.equal(other.labels, drawn.labels)
    assert other.digest(other.positions("all")) != drawn.digest(drawn.positions("all"))


def test_a_corruption_is_the_same_in_every_roll(drawn):
    fog = Corruption.parse("fog:3")
    corrupted = drawn.corrupted(fog)
    some = drawn.positions("few", 3)
    assert torch.equal(corrupted.problem(some).pixels, fog(drawn.pixels[some], seed=0))
    assert not torch.equal(corrupted.pixels, drawn.pixels)
    assert torch.equal(corrupted.labels, drawn.labels)
