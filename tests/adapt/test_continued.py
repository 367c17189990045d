"""Learning on from a recipe: what is kept of it, what new images change, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.calibration import Calibration
from atlas_engine.class_names import NONE_OF_THESE
from atlas_engine.data.support import Support
from atlas_engine.errors import RecipeError, SupportError
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

CONFIG = FewShotConfig(steps=6, batch=8, lr=0.2)


@pytest.fixture(scope="module")
def bank():
    return tiny_bank(tiny_engine().backbone.visual)


@pytest.fixture(scope="module")
def supports(tmp_path_factory):
    root = tmp_path_factory.mktemp("continued")
    first = Support.from_folder(write_pictures(root / "first", {"red": 4, "blue": 4}))
    more = Support.from_folder(write_pictures(root / "more", {"red": 3, "dark_green": 3}, side=40))
    return first, more


@pytest.fixture(scope="module")
def result(supports, bank):
    return tiny_engine().few_shot(supports[0], bank=bank, config=CONFIG, seed=1).result()


@pytest.fixture(scope="module")
def learned(supports, bank):
    run = tiny_engine().few_shot(supports[0], method="atlas+text-probe", bank=bank, config=CONFIG)
    return run.result().recipe


def test_auto_calibrates_its_recipe_and_gives_advice(result, supports):
    found = result.recipe.calibration
    assert isinstance(found, Calibration)
    assert found.kept_share == pytest.approx(8 / 9)  # what 8 images can promise
    assert result.advice is not None
    assert result.recipe.config["images"] == len(supports[0])


def test_a_method_that_holds_nothing_out_has_neither(learned):
    assert learned.calibration is None


def test_no_steps_and_no_new_information_leave_the_coefficients(learned, supports, bank):
    engine = tiny_engine()
    run = engine.continue_from(learned, supports[0], bank=bank, config=FewShotConfig(steps=0))
    recipe = run.result().recipe
    torch.testing.assert_close(recipe.coefficients.table, learned.coefficients.table)


def test_new_classes_are_added_behind_the_old_ones(learned, supports, bank):
    engine, more = tiny_engine(), supports[1]
    result = engine.continue_from(learned, more, bank=bank, config=CONFIG).result()
    assert result.recipe.classes == ("blue", "red", "dark green")
    assert result.recipe.config["images"] == 8 + 6
    answers = engine.logits(result.recipe, engine.pixels(more.images), bank=bank).argmax(dim=1)
    numbers = torch.tensor([result.recipe.classes.index(more.classes[label]) for label in more.labels])
    assert float((answers == numbers).float().mean()) > 0.6
    assert "the recipe as it was" in result.verdict.sentence


def test_a_class_without_new_images_keeps_its_row_of_the_head(learned, supports, bank):
    result = tiny_engine().continue_from(learned, supports[1], bank=bank, config=CONFIG).result()
    if result.verdict.kept != learned.method:
        torch.testing.assert_close(result.recipe.head["weight"][0], learned.head["weight"][0])
        torch.testing.assert_close(result.recipe.head["bias"][0], learned.head["bias"][0])


def test_a_head_that_cannot_learn_on_is_refused(learned, supports, bank):
    tip = dataclasses.replace(learned, config={**learned.config, "head": "tip"})
    with pytest.raises(RecipeError, match="'tip', which cannot learn on"):
        tiny_engine().continue_from(tip, supports[1], bank=bank).result()


def test_a_recipe_of_another_model_is_refused_before_anything_runs(learned, supports, bank):
    other = dataclasses.replace(learned, model_fingerprint="0" * 64)
    with pytest.raises(RecipeError, match="was made for"):
        tiny_engine().continue_from(other, supports[1], bank=bank)


def test_held_out_images_calibrate_any_recipe(learned, supports, bank):
    engine, (first, more) = tiny_engine(), supports
    calibrated = engine.calibrate(learned, first, kept_share=0.8, bank=bank)
    assert calibrated.calibration.kept_share == pytest.approx(8 / 9)
    shown = engine.compare(first.images, calibrated, bank=bank)
    assert sum(shown.adapted.rejected) == 0  # the smallest logit of the eight is the threshold
    assert shown.adapted.labels == engine.compare(first.images, learned, bank=bank).adapted.labels
    assert shown.zero_shot.rejected is None
    with pytest.raises(SupportError, match="class 'dark green' is not known"):
        engine.calibrate(learned, more, bank=bank)


def test_negatives_become_a_class_that_rejects(supports, bank):
    first, more = supports
    support = first.with_negatives(more.images[:3])
    assert support.classes == ("blue", "red", NONE_OF_THESE)
    recipe = tiny_engine().few_shot(support, method="text-probe", bank=bank).result().recipe
    shown = tiny_engine().compare(support.images, recipe, bank=bank).adapted
    assert shown.rejected is not None
    assert any(shown.rejected[-3:])
    with pytest.raises(SupportError, match="already"):
        support.with_negatives(more.images[:1])
