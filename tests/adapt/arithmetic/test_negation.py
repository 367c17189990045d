"""Forgetting on a small real model: within the bound, never in silence, and as the recipe says."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.adapt.arithmetic.config import NegateConfig
from atlas_engine.adapt.arithmetic.forgetting import forgetting_curve, scale_recipe
from atlas_engine.adapt.arithmetic.recipes import task_classes, task_columns
from atlas_engine.bank import TaskVector, TaskVectorBank
from atlas_engine.bank.vector import VectorInfo
from atlas_engine.data.support import Support
from atlas_engine.errors import BankError, ConfigError, RecipeError, SupportError
from atlas_engine.recipe import Recipe
from tests.drawn import noise_picture

CONFIG = NegateConfig(steps=8, lr=0.1, batch=8, views=1, share=0.4, grid=0.25, keep=0.5)


@pytest.fixture(scope="module")
def result(engine, bank, target, control):
    return engine.negate(target, control, vector="task1", config=CONFIG, bank=bank).result()


@pytest.mark.parametrize("method", ["scalar", "atlas", "auto"])
@pytest.mark.parametrize("keep", [0.5, 1.0])
def test_the_control_stays_within_the_bound(method, keep, engine, bank, target, control):
    run = engine.negate(
        target, control, vector="task0", method=method, config=CONFIG, bank=bank, keep=keep, seed=1
    )
    told = run.result().recipe.config
    assert told["keep"] == keep
    assert told["control_after"] >= keep * told["control_before"]
    assert told["target_after"] <= told["target_before"]


def test_the_verdict_and_the_estimates_tell_both_before_and_after(result):
    told = {one.method: one for one in result.estimates}
    names = [
        f"{method}, {what}" for what in ("target", "control") for method in ("zero-shot", "scalar", "atlas")
    ]
    assert list(told) == names
    kept, config = result.verdict.kept, result.recipe.config
    assert told[f"{kept}, target"].accuracy == config["target_after"]
    assert told["zero-shot, control"].accuracy == config["control_before"]
    assert str(round(config["target_before"] * told["zero-shot, target"].images)) in result.verdict.sentence


def test_phases_come_in_order_and_the_share_never_falls(engine, bank, target, control):
    steps = list(engine.negate(target, control, vector="task0", config=CONFIG, bank=bank))
    phases = list(dict.fromkeys(step.phase for step in steps))
    assert phases == ["encode", "search", "learn"]
    shares = [step.share for step in steps]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_a_scalar_search_moves_one_vector_by_one_number_of_the_grid(engine, bank, target, control):
    run = engine.negate(target, control, vector="task2", method="scalar", config=CONFIG, bank=bank, keep=0.0)
    result = run.result()
    table = result.coefficients.table
    assert not table[:2].any()
    (value,) = table[2].unique().tolist()
    assert value in {-0.25, -0.5, -0.75, -1.0, 0.0}
    assert result.history == ()


def test_only_the_late_part_is_learned(engine, bank, target, control):
    run = engine.negate(target, control, vector="task0", method="atlas", config=CONFIG, bank=bank, keep=0.0)
    moved = run.result().coefficients.table.any(dim=0)
    assert 0 < int(moved.sum()) < len(moved)


def test_a_vector_of_nothing_forgets_nothing_and_says_so(engine, bank, target, control):
    zero = {name: torch.zeros_like(tau) for name, tau in bank.vector("task0").blocks.items()}
    still = TaskVectorBank.from_vectors([TaskVector("zero", zero, bank.base)])
    result = engine.negate(target, control, config=CONFIG, bank=still).result()
    assert result.fell_back
    assert result.verdict.helped is False
    assert "Nothing could be forgotten" in result.verdict.sentence
    assert not result.coefficients.values.any()


def test_the_same_seed_gives_the_same_recipe(engine, bank, target, control, result):
    again = engine.negate(target, control, vector="task1", config=CONFIG, bank=bank).result()
    assert again.recipe == result.recipe


def test_a_cancelled_run_still_hands_over_a_recipe_within_the_bound(engine, bank, target, control):
    run = engine.negate(target, control, vector="task0", config=CONFIG, bank=bank)
    for step in run:
        if step.phase == "learn":
            run.cancel()
    result = run.result()
    assert result.outcome.value == "cancelled"
    assert result.recipe.config["control_after"] >= 0.5 * result.recipe.config["control_before"]


def test_the_target_s_own_vector_is_by_default_the_one_whose_images_are_nearest(
    engine, bank, target, control
):
    feature = engine.features(target.images).mean(dim=0)
    centroids = (-feature, feature, torch.randn(16, generator=torch.Generator().manual_seed(0)))
    vectors = [
        TaskVector(name, bank.vector(name).blocks, bank.base, VectorInfo(centroid=tuple(centroid.tolist())))
        for name, centroid in zip(bank.tasks, centroids, strict=True)
    ]
    near = TaskVectorBank.from_vectors(vectors)
    run = engine.negate(target, control, method="scalar", config=CONFIG, bank=near)
    assert run.result().recipe.config["vector"] == "task1"


def test_a_bank_that_knows_nothing_of_its_images_still_forgets(engine, bank, target, control):
    assert not any(info.centroid for info in bank.infos)
    config = engine.negate(target, control, method="scalar", config=CONFIG, bank=bank).result().recipe.config
    assert config["vector"] in bank.tasks
    assert config["control_after"] >= CONFIG.keep * config["control_before"]


def test_strange_words_are_refused_with_the_nearest(engine, bank, target, control):
    with pytest.raises(BankError, match="task1"):
        engine.negate(target, control, vector="taks1", bank=bank, config=CONFIG).result()
    with pytest.raises(ConfigError, match="scalar"):
        engine.negate(target, control, method="scaler", bank=bank, config=CONFIG).result()


def test_a_class_of_one_image_cannot_be_held_out(engine, bank, control):
    pictures = tuple(noise_picture(seed) for seed in range(3))
    lonely = Support(pictures, (0, 0, 1), ("cat", "dog"))
    with pytest.raises(SupportError, match="class 'dog' has 1 image"):
        engine.negate(lonely, control, vector="task0", bank=bank, config=CONFIG).result()


def test_a_recipe_knows_the_classes_of_both_and_survives_a_file(result, tmp_path):
    result.save(tmp_path / "r.atlas.safetensors")
    recipe = Recipe.load(tmp_path / "r.atlas.safetensors")
    assert task_classes(recipe) == {"target": ("blue", "red"), "control": ("dark green", "grey")}
    assert task_columns(recipe, "control") == [2, 3]
    with pytest.raises(RecipeError, match="target"):
        task_columns(recipe, "traget")


def test_a_slider_goes_from_zero_shot_to_the_recipe(engine, bank, target, control, result):
    none, half, whole = forgetting_curve(
        engine, result.recipe, target, control, scales=(0, 0.5, 1), bank=bank
    )
    labels = torch.tensor(target.labels)
    assert none.target == pytest.approx(engine.predict(target.images, target.classes).accuracy(labels))
    squares = target.pixels(32, resize="shortest", interpolation="bicubic")
    answers = engine.logits(result.recipe, squares, bank=bank)[:, :2].argmax(1)
    assert whole.target == pytest.approx((answers == labels).float().mean().item())
    assert half.scale == 0.5
    assert scale_recipe(result.recipe, 1.0) == result.recipe


def test_a_slider_wants_a_negation_and_its_classes(engine, bank, target, control, result):
    with pytest.raises(SupportError, match="no target class"):
        forgetting_curve(engine, result.recipe, control, target, bank=bank)
    other = engine.few_shot(target, method="tip", bank=bank).result().recipe
    with pytest.raises(RecipeError, match="forgets nothing"):
        forgetting_curve(engine, other, target, control, bank=bank)
