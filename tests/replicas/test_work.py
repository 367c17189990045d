"""What a replica does, without Ray: the answers of the engine, also when several ask at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import atlas_engine as atlas
from app.replicas import messages
from app.replicas.results import Results
from app.replicas.work import Worker
from tests.drawn import ROOT

APPLES = ROOT / "assets" / "examples" / "apples"


@pytest.fixture
def worker(engine, tmp_path):
    return Worker(engine, Results(str(tmp_path)))


@pytest.fixture(scope="module")
def images():
    files = sorted((APPLES / "teach").rglob("*.jpg"))[:3]
    return [atlas.read_image(path, name=path.name) for path in files]


def message(images, **facts):
    return messages.encode(
        {"names": [one.name for one in images], **facts}, messages.images_as_tensors(images)
    )


def test_several_questions_at_once_get_the_answers_of_one_after_the_other(worker, engine, images):
    """A model that answers two at once mixes up their features: this failed before replicas took turns."""
    recipe = atlas.Recipe.load(APPLES / "recipe.atlas.safetensors")
    recipe_id = worker.results.put(recipe.to_bytes())
    expected = [engine.compare([one], recipe).adapted.probs for one in images]
    bodies = [message([one], recipe=recipe_id) for one in images] * 8
    with ThreadPoolExecutor(4) as threads:
        found = [messages.comparison_from(body) for body in threads.map(worker.try_recipe, bodies)]
    assert all(torch.equal(one.adapted.probs, right) for one, right in zip(found, expected * 8, strict=True))


def test_a_question_without_classes_is_refused_in_words(worker, images):
    for classes in (None, "cat", [1, 2]):
        with pytest.raises(atlas.AtlasError, match="cannot be read"):
            worker.predict(message(images, classes=classes))


@pytest.mark.parametrize("facts", [{}, {"labels": ["x"]}, {"labels": [0], "config": {"stepps": 1}}])
def test_a_lesson_that_is_not_whole_is_refused_in_words(worker, images, facts):
    with pytest.raises(atlas.AtlasError, match="cannot be read"):
        worker.learn(message(images, classes=["a", "b"], **facts))
