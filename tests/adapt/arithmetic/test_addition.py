"""One model for two tasks, on a small real model: what is searched, learned, chosen and kept."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.adapt.arithmetic.addition import find_task_vectors
from atlas_engine.adapt.arithmetic.config import AddConfig
from atlas_engine.adapt.arithmetic.recipes import task_classes
from atlas_engine.adapt.arithmetic.tasks import TaskImages
from atlas_engine.bank import TaskVector, TaskVectorBank
from atlas_engine.bank.edit import merge_ties
from atlas_engine.bank.vector import VectorInfo
from atlas_engine.errors import ConfigError, SupportError
from atlas_engine.recipe import Recipe

CONFIG = AddConfig(steps=8, lr=0.1, batch=8, views=2, share=0.4, grid=0.25)


def mean_held_out(result, method):
    own = [one.accuracy for one in result.estimates if one.method.startswith(f"{method}, ")]
    assert len(own) == 2
    return sum(own) / 2


@pytest.fixture(scope="module")
def tasks(target, control):
    return {"task0": target, "task1": control}


@pytest.fixture(scope="module")
def result(engine, bank, tasks):
    return engine.add(tasks, config=CONFIG, bank=bank).result()


def test_learning_starts_from_the_search_and_the_best_of_all_is_kept(result):
    means = {method: mean_held_out(result, method) for method in ("zero-shot", "scalar", "atlas")}
    assert means["zero-shot"] <= means["scalar"] <= means["atlas"]
    assert mean_held_out(result, result.verdict.kept) == max(means.values())
    assert result.recipe.method == result.verdict.kept


def test_a_task_s_own_model_is_measured_where_the_bank_has_its_vector(engine, bank, tasks, target, result):
    assert mean_held_out(result, "own vector") > 0
    strangers = engine.add([target, tasks["task1"]], method="uniform", config=CONFIG, bank=bank).result()
    assert not any(one.method.startswith("own") for one in strangers.estimates)
    assert list(task_classes(strangers.recipe)) == ["task 1", "task 2"]


@pytest.mark.parametrize(("method", "value"), [("uniform", 1 / 3), ("scalar", None)])
def test_one_number_for_all_is_one_number(method, value, engine, bank, tasks):
    result = engine.add(tasks, method=method, config=CONFIG, bank=bank).result()
    (found,) = result.coefficients.table.unique().tolist()
    assert found == pytest.approx(value) if value else found in (0.0, 0.25, 0.5, 0.75, 1.0)


def test_early_blocks_stay_where_the_search_put_them_and_late_ones_move(engine, bank, tasks):
    """Learned without labels: its start is 0.3, and nothing is chosen, so the late blocks have moved."""
    table = engine.add(tasks, method="adamerging", config=CONFIG, bank=bank).result().coefficients.table
    still = (table == 0.3).all(dim=0)
    assert 0 < int(still.sum()) < len(still)


def test_a_saved_recipe_gives_the_accuracies_that_were_told(engine, bank, tasks, result, tmp_path):
    result.save(tmp_path / "r.atlas.safetensors")
    recipe = Recipe.load(tmp_path / "r.atlas.safetensors")
    assert task_classes(recipe) == {name: support.classes for name, support in tasks.items()}
    squares = tasks["task0"].pixels(32, resize="shortest", interpolation="bicubic")
    logits = engine.logits(recipe, squares, bank=bank)
    assert torch.equal(logits, engine.logits(result.recipe, squares, bank=bank))
    assert recipe.config["task0 after"] == next(
        one.accuracy for one in result.estimates if one.method == f"{recipe.method}, task0"
    )


def test_a_merged_vector_is_searched_like_any_other(engine, bank, tasks):
    merged = TaskVectorBank.from_vectors([merge_ties(bank)])
    result = engine.add(tasks, method="scalar", config=CONFIG, bank=merged).result()
    assert result.coefficients.tasks == ("ties",)


def test_the_same_seed_gives_the_same_recipe(engine, bank, tasks, result):
    assert engine.add(tasks, config=CONFIG, bank=bank).result().recipe == result.recipe


def test_tasks_find_their_own_vectors_by_name_or_data_set(bank):
    vectors = [
        TaskVector(name, bank.vector(name).blocks, bank.base, VectorInfo(dataset=f"set of {name}"))
        for name in bank.tasks
    ]
    named = TaskVectorBank.from_vectors(vectors)
    assert find_task_vectors(named, ["task2", "set of task0"]).tasks == ("task2", "task0")
    assert find_task_vectors(named, ["task2", "unknown"]).tasks == named.tasks


def test_a_picture_without_its_label_tells_its_task_alone():
    pictures = TaskImages(
        torch.zeros(4, 3, 2, 2, dtype=torch.uint8),
        torch.tensor([1, 0, 4, 3]),
        torch.tensor([0, 0, 1, 1]),
        (2, 3),
    )
    assert pictures.without_labels().labels.tolist() == [0, 0, 2, 2]


def test_one_task_is_refused_and_so_is_a_strange_word(engine, bank, tasks, target):
    with pytest.raises(SupportError, match="at least 2"):
        engine.add({"alone": target}, bank=bank)
    with pytest.raises(ConfigError, match="uniform"):
        engine.add(tasks, method="unifrom", bank=bank).result()
