"""Templates that a caller chooses: what is learned is learned under them, and the recipe answers so."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from atlas_engine.adapt.settings import FewShotConfig, TestTimeConfig
from atlas_engine.data.support import Support
from atlas_engine.errors import ConfigError
from atlas_engine.recipe import Recipe
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

QUICK = FewShotConfig(steps=2, batch=4, views=1)
TWO = "a {}?\nmy {}."
SENTENCES = ("a {}?", "my {}.")


@pytest.fixture(scope="module")
def engine():
    return tiny_engine()


@pytest.fixture(scope="module")
def support(tmp_path_factory):
    folder = tmp_path_factory.mktemp("templates") / "set"
    return Support.from_folder(write_pictures(folder, {"red": 3, "blue": 3}))


@pytest.fixture(scope="module")
def bank(engine):
    return tiny_bank(engine.backbone.visual, size=0.5)


def learn(engine, support, bank, **more):
    return engine.few_shot(support, method="atlas", bank=bank, config=QUICK, **more).result().recipe


def test_a_recipe_records_the_sentences_and_answers_under_them(engine, support, bank, tmp_path):
    recipe = learn(engine, support, bank, templates=TWO)
    assert recipe.config["templates"] == list(SENTENCES)
    recipe.save(tmp_path / "r.safetensors")
    loaded = Recipe.load(tmp_path / "r.safetensors")
    assert loaded == recipe
    assert loaded.templates == SENTENCES
    # λ = 0 answers as zero-shot does under these sentences, and not under the model's own
    still = dataclasses.replace(
        loaded, coefficients=loaded.coefficients.scaled(tasks=dict.fromkeys(bank.tasks, 0.0))
    )
    both = engine.compare(support.images, still, bank=bank)
    under = engine.predict(support.images, support.classes, templates=TWO)
    assert torch.equal(both.zero_shot.probs, under.probs)
    assert torch.allclose(both.adapted.probs, under.probs, atol=1e-5)  # θ0 + 0 · τ rounds in float32
    assert not torch.allclose(under.probs, engine.predict(support.images, support.classes).probs, atol=1e-3)


def test_another_set_learns_other_coefficients_and_the_models_own_the_same_to_the_last_bit(
    engine, support, bank
):
    usual = learn(engine, support, bank)
    assert "templates" not in usual.config
    assert usual.templates is None
    named = learn(engine, support, bank, templates=engine.backbone.templates)
    assert torch.equal(named.coefficients.values, usual.coefficients.values)
    pixels = engine.pixels(support.images)
    assert torch.equal(engine.logits(named, pixels, bank=bank), engine.logits(usual, pixels, bank=bank))
    other = learn(engine, support, bank, templates="photo")
    assert not torch.equal(other.coefficients.values, usual.coefficients.values)


def test_validation_images_are_named_under_the_same_sentences(engine, support, bank):
    run = engine.few_shot(
        support, method="atlas", bank=bank, config=QUICK, validation=support, templates=list(SENTENCES)
    )
    (score,) = next(step.scores for step in run if step.scores is not None)
    named = engine.predict(support.images, support.classes, templates=TWO)
    assert score == pytest.approx(named.accuracy(torch.tensor(support.labels)))


@pytest.mark.parametrize("objective", ["entropy", "paper", "anchored"])
def test_without_labels_they_are_recorded_too(engine, support, bank, objective):
    config = TestTimeConfig(steps=1, epochs=0)
    run = engine.test_time(
        support.images, support.classes, objective=objective, bank=bank, config=config, templates=TWO
    )
    assert run.result().recipe.templates == SENTENCES


def test_a_baseline_answers_under_them(engine, support, bank):
    answers = {}
    for templates in (None, TWO):
        run = engine.test_time_norms(
            support.images,
            support.classes,
            method="ln-entropy",
            bank=bank,
            config=TestTimeConfig(steps=0),
            templates=templates,
        )
        answers[templates] = run.result().logits.softmax(dim=1)
    under = engine.predict(support.images, support.classes, templates=TWO).probs
    assert torch.allclose(answers[TWO], under, atol=1e-5)  # batches of another size round otherwise
    assert not torch.allclose(answers[None], under, atol=1e-3)


def test_a_stream_answers_under_them_from_its_first_image_on(engine, support, bank):
    stream = engine.stream(support.classes, bank=bank, templates=TWO)
    answered = stream.answer(support.images[0]).probs
    under = engine.predict(support.images[:1], support.classes, templates=TWO).probs
    assert torch.allclose(answered, under, atol=1e-5)  # as above
    assert stream.result().recipe.templates == SENTENCES


def test_a_wrong_name_is_refused_before_anything_runs(engine, support, bank):
    for start in (
        lambda: engine.few_shot(support, bank=bank, templates="carz"),
        lambda: engine.test_time(support.images, support.classes, bank=bank, templates="carz"),
        lambda: engine.stream(support.classes, bank=bank, templates="carz"),
    ):
        with pytest.raises(ConfigError, match="Did you mean 'cars'"):
            start()
