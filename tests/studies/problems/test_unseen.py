"""Images that a vector was not trained on: split again, proven by its checksum, never on both sides."""

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
def folder(tiny, tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("unseen") / "set", {"red": 20, "blue": 20, "grey": 20})


@pytest.fixture(scope="module")
def info(tiny, folder):
    return drain(train_vector(tiny, folder, name="set", settings=TRAINING)).info


@pytest.fixture(scope="module")
def pool(tiny, folder, info):
    return find_unseen(folder, info, tiny.backbone.preprocessing)


def test_the_split_is_that_of_the_training(pool, info):
    made = info.provenance
    assert len(pool.validation) == int(made["val_images"])
    assert len(pool.test) == int(made["test_images"])
    assert len(pool.labels) - len(pool.validation) - len(pool.test) == int(made["train_images"])


def test_a_problem_has_no_image_that_was_learned_from_and_none_on_both_sides(pool):
    unseen = {pool.pixels[row].numpy().tobytes() for row in (*pool.validation, *pool.test)}
    measured = {pool.pixels[row].numpy().tobytes() for row in pool.test}
    for seed in range(3):
        problem = pool.problem(SETTINGS, seed=seed)
        learned = {image.pixels.transpose(2, 0, 1).tobytes() for image in problem.support.images}
        tested = {image.numpy().tobytes() for image in problem.pixels}
        assert learned <= unseen
        assert tested <= measured
        assert not learned & tested
        assert max(problem.support.counts) <= 5
        assert len(problem.support.classes) == 2
        assert len(tested) <= 8


def test_a_seed_draws_one_problem_and_another_seed_another(pool):
    digests = [pool.problem(SETTINGS, seed=seed).digest for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_images_other_than_the_vectors_own_give_no_pool(tiny, folder, info, tmp_path):
    other = write_pictures(tmp_path / "set", {"red": 20, "blue": 20, "dark_green": 20})
    assert find_unseen(other, info, tiny.backbone.preprocessing) is None
    silent = replace(info, provenance={})
    assert find_unseen(folder, silent, tiny.backbone.preprocessing) is None


def test_another_split_of_the_same_images_is_refused(tiny, folder, info):
    strange = replace(info, provenance={**info.provenance, "train_images": "5"})
    with pytest.raises(SupportError, match="--track-pattern"):
        find_unseen(folder, strange, tiny.backbone.preprocessing)


def test_without_a_pool_all_images_are_drawn_from(tiny, folder):
    shape = tiny.backbone.preprocessing
    problem = draw_unseen_problem(folder, None, shape, settings=SETTINGS, seed=0)
    assert problem.support.counts == (5, 5)
    assert len(problem.labels) == 8


def test_too_few_unseen_images_are_an_error(pool):
    poor = replace(pool, test=pool.test[:3], validation=())
    with pytest.raises(SupportError, match="a task needs 2"):
        poor.problem(SETTINGS, seed=0)
