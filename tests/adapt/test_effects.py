"""What each task vector does to the answers, against leaving it out by hand."""

from __future__ import annotations

import pytest
import torch

import atlas_engine as atlas
from tests.drawn import COLOURS, square
from tests.task_vectors import TASK_VECTORS, engine_with_task_vectors


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return engine_with_task_vectors(tmp_path_factory.mktemp("bank"))


@pytest.fixture(scope="module")
def images():
    return [
        atlas.Image(f"{name}-{seed}", square(colour, seed=seed, side=48))
        for name, colour in COLOURS.items()
        for seed in range(3)
    ]


@pytest.fixture(scope="module")
def support(images):
    labels = [place // 3 for place in range(len(images))]
    return atlas.Support(tuple(images), tuple(labels), tuple(name.replace("_", " ") for name in COLOURS))


@pytest.mark.parametrize("method", ["atlas", "atlas+text-probe"])
def test_an_effect_is_what_leaving_the_vector_out_does(small, support, images, method):
    recipe = small.few_shot(support, method=method, config=atlas.FewShotConfig(steps=4)).result().recipe
    effects = small.effects(recipe, images)
    assert {one.task for one in effects} <= set(TASK_VECTORS)
    whole = small.compare(images, recipe).adapted
    for one in effects:
        without = small.compare(images, recipe.scaled(tasks={one.task: 0.0})).adapted
        assert one.answers == tuple(without.probs.argmax(dim=1).tolist())
        assert torch.allclose(torch.tensor(one.probs), without.probs.max(dim=1).values, atol=1e-4)
        shift = (whole.probs - without.probs).abs().sum(dim=1).mean() / 2
        assert one.effect == pytest.approx(float(shift), abs=1e-4)
        assert one.changed == sum(a != b for a, b in zip(whole.labels, without.labels, strict=True))


def test_the_largest_effect_comes_first_and_a_vector_alone_has_it_all(small, support, images):
    recipe = small.few_shot(support, method="atlas", config=atlas.FewShotConfig(steps=4)).result().recipe
    effects = [one.effect for one in small.effects(recipe, images)]
    assert effects == sorted(effects, reverse=True)
    first, *others = TASK_VECTORS
    alone = recipe.scaled(tasks=dict.fromkeys(others, 0.0))
    assert [one.task for one in small.effects(alone, images)] == [first]


def test_a_recipe_that_draws_on_no_vector_has_no_effects(small, support, images):
    recipe = small.few_shot(support, method="text-probe").result().recipe
    assert small.effects(recipe, images) == []
