"""What a vector has not learned from: dealt out again, proven by its checksum, never on both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atlas_engine.errors import SupportError
from atlas_engine.runtime import drain
from atlas_engine.training import TrainSettings, train_vector
from studies.problems.unseen import PoolSettings, draw_unseen_problem, find_unseen
from tests.drawn import write_pictures

TRAINING = TrainSettings(steps=2, batch=8, warm_up=1, measure_every=2, val_share=0.2, test_share=0.4)
SETTINGS = PoolSettings(learn=5, max_classes=2, max_test=8)


@pytest.fixture(scope="module")
def place(tiny, tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("unseen") / "set", {"red": 20, "blue": 20, "grey": 20})


@pytest.fixture(scope="module")
def info(tiny, place):
    return drain(train_vector(tiny, place, name="set", settings=TRAINING)).info


@pytest.fixture(scope="module")
def pool(tiny, place, info):
    return find_unseen(place, info, tiny.backbone.preprocessing)


def test_the_cut_is_that_of_the_training(pool, info):
    made = info.provenance
    assert len(pool.choosing) == int(made["val_images"])
    assert len(pool.testing) == int(made["test_images"])
    assert len(pool.labels) - len(pool.choosing) - len(pool.testing) == int(made["train_images"])


def test_a_problem_has_no_picture_that_was_learned_from_and_none_on_both_sides(pool):
    unseen = {pool.squares[row].numpy().tobytes() for row in (*pool.choosing, *pool.testing)}
    measured = {pool.squares[row].numpy().tobytes() for row in pool.testing}
    for seed in range(3):
        problem = pool.problem(SETTINGS, seed=seed)
        learned = {picture.pixels.transpose(2, 0, 1).tobytes() for picture in problem.support.pictures}
        tested = {square.numpy().tobytes() for square in problem.squares}
        assert learned <= unseen
        assert tested <= measured
        assert not learned & tested
        assert max(problem.support.counts) <= 5
        assert len(problem.support.classes) == 2
        assert len(tested) <= 8


def test_a_seed_draws_one_problem_and_another_seed_another(pool):
    digests = [pool.problem(SETTINGS, seed=seed).digest for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_other_pictures_than_the_vector_s_are_not_dealt_again(tiny, place, info, tmp_path):
    other = write_pictures(tmp_path / "set", {"red": 20, "blue": 20, "dark_green": 20})
    assert find_unseen(other, info, tiny.backbone.preprocessing) is None
    silent = replace(info, provenance={})
    assert find_unseen(place, silent, tiny.backbone.preprocessing) is None


def test_another_cut_of_the_same_pictures_is_refused(tiny, place, info):
    strange = replace(info, provenance={**info.provenance, "train_images": "5"})
    with pytest.raises(SupportError, match="--track-pattern"):
        find_unseen(place, strange, tiny.backbone.preprocessing)


def test_without_a_pool_all_pictures_are_drawn_from(tiny, place):
    shape = tiny.backbone.preprocessing
    problem = draw_unseen_problem(place, None, shape, settings=SETTINGS, seed=0)
    assert problem.support.counts == (5, 5)
    assert len(problem.labels) == 8


def test_too_few_unseen_pictures_are_told(pool):
    poor = replace(pool, testing=pool.testing[:3], choosing=())
    with pytest.raises(SupportError, match="a task needs 2"):
        poor.problem(SETTINGS, seed=0)
