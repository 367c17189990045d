"""`atlas adapt few-shot|negate|add` and `atlas predict --recipe`, run as a person runs them."""

from __future__ import annotations

import json
import shutil

import pytest

from atlas_engine.cli import main
from atlas_engine.engine import Atlas
from atlas_engine.recipe import Recipe
from tests.cli.image_sets import BANK, require_refusal, write_image_sets
from tests.drawn import write_pictures
from tests.engines import tiny_engine

QUICK = ["--steps", "2", "--batch", "4", "--views", "1", "--folds", "2"]


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapt") / "colours"
    write_pictures(folder, {"red": 3, "blue": 3})
    return folder


# ---- few-shot, on the bundled model


def test_a_folder_becomes_a_recipe_that_predict_takes(colours, tmp_path, capsys):
    recipe = tmp_path / "mine.atlas.safetensors"
    query = str(next((colours / "red").iterdir()))
    assert (
        main(["adapt", "few-shot", str(colours), "-o", str(recipe), "--query", query, "--json", *QUICK]) == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in printed["estimates"]] == [
        "zero-shot",
        "text-probe",
        "atlas+text-probe",
    ]
    assert printed["sentence"]
    assert Recipe.load(recipe).classes == ("blue", "red")
    assert main(["predict", query, "--recipe", str(recipe), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["label"] == printed["adapted"][0]["label"]
    assert row["prob"] == pytest.approx(printed["adapted"][0]["prob"], abs=1e-4)


def test_words_for_people_hold_the_verdict_and_a_table(colours, capsys):
    assert main(["adapt", "few-shot", str(colours), "--method", "lpp", *QUICK]) == 0
    assert "lpp was asked for" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--method", "atlass"], "Did you mean"),
        (["--steps", "-1"], "steps"),
    ],
)
def test_bad_words_are_one_sentence(words, sentence, colours, capsys):
    assert main(["adapt", "few-shot", str(colours), *words]) in (1, 2)
    assert sentence in capsys.readouterr().err


def test_a_single_class_is_refused_with_what_is_needed(tmp_path, capsys):
    write_pictures(tmp_path / "one", {"red": 3, "blue": 1})
    shutil.rmtree(tmp_path / "one" / "blue")
    assert main(["adapt", "few-shot", str(tmp_path / "one")]) == 1
    assert "at least 2" in capsys.readouterr().err


# ---- few-shot with validation images and templates, on a small model and bank

PAPER = ("--method", "paper", "--epochs", "1", "--batch", "4", "--lr", "0.2", "--share", "0.5")


@pytest.fixture(scope="module")
def two_sets(tmp_path_factory):
    sets = {"few": {"red": 2, "blue": 2}, "more": {"red": 3, "blue": 3}, "other": {"red": 2, "grey": 2}}
    return write_image_sets(tmp_path_factory.mktemp("validation"), sets, size=0.5)


def test_validation_images_templates_and_the_papers_settings_are_flags(two_sets, tiny_atlas, tmp_path):
    recipe, query = tmp_path / "r.atlas.safetensors", next((two_sets / "more" / "red").iterdir())
    words = ("adapt", "few-shot", two_sets / "few", "--bank", two_sets / BANK, *PAPER, "--query", query)
    code, printed, _ = tiny_atlas(
        *words, "--validation", two_sets / "more", "--templates", "photo", "--templates", "my {}.",
        "-o", recipe, "--json",
    )  # fmt: skip
    assert code == 0
    made = Recipe.load(recipe)
    assert made.templates == ("a photo of a {}.", "my {}.")
    assert [made.config[name] for name in ("epochs", "batch", "lr", "share")] == [1, 4, 0.2, 0.5]
    both = Atlas(tiny_engine().backbone, bank_path=two_sets / BANK).compare([query], made)
    assert json.loads(printed)["adapted"][0]["prob"] == both.adapted.top(1)[0][0].prob
    assert json.loads(printed)["zero_shot"][0]["prob"] == both.zero_shot.top(1)[0][0].prob


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--validation", "{more}"), "auto holds images out by itself"),
        (("--method", "paper", "--validation", "{other}"), "the validation images are of grey, red"),
        (("--validation", "nowhere"), "nowhere"),
        (("--templates", "carz"), "Did you mean 'cars'"),
        (("--templates", "a photo of a cat"), "a sentence with {} where the class name goes"),
    ],
)
def test_validation_images_and_templates_that_do_not_fit_are_refused(words, sentence, two_sets, tiny_atlas):
    words = [
        word.replace("{more}", str(two_sets / "more")).replace("{other}", str(two_sets / "other"))
        for word in words
    ]
    printed = tiny_atlas("adapt", "few-shot", two_sets / "few", "--bank", two_sets / BANK, *words)
    require_refusal(printed, 1, sentence)


# ---- negate and add, on a small model and bank

QUICK_ARITHMETIC = ("--steps", "2", "--batch", "4", "--views", "1", "--grid", "0.5")


@pytest.fixture(scope="module")
def image_sets(tmp_path_factory):
    sets = {
        "task0": {"red": 8, "blue": 8},
        "task1": {"dark_green": 8, "grey": 8},
        "again/task1": {"grey": 8, "red": 8},
        "control": {"grey": 8, "red": 8},
    }
    return write_image_sets(tmp_path_factory.mktemp("arithmetic"), sets, size=0.5)


@pytest.fixture
def atlas(image_sets, tiny_atlas):
    return lambda *words: tiny_atlas(*words, "--bank", image_sets / BANK)


def test_forgetting_writes_a_recipe_with_both_accuracies(atlas, image_sets, tmp_path):
    recipe = tmp_path / "r.atlas.safetensors"
    parts = ("--target", image_sets / "task0", "--control", image_sets / "control")
    code, printed, _ = atlas("adapt", "negate", *parts, "-o", recipe, *QUICK_ARITHMETIC, "--json")
    assert code == 0
    facts = json.loads(printed)
    assert facts["sentence"]
    assert {row["method"] for row in facts["estimates"]} >= {"zero-shot, target", "atlas, control"}
    config = Recipe.load(recipe).config
    assert config["vector"] == "task0", "found by the folder's name"
    assert {"target_before", "target_after", "control_before", "control_after"} <= set(config)


def test_adding_prints_every_task_and_writes_a_recipe(atlas, image_sets, tmp_path):
    recipe = tmp_path / "r.atlas.safetensors"
    code, printed, _ = atlas(
        "adapt", "add", image_sets / "task0", image_sets / "task1", "-o", recipe, *QUICK_ARITHMETIC
    )
    assert code == 0
    assert "own vector, task1" in printed
    assert f"recipe: {recipe}" in printed
    assert Recipe.load(recipe).coefficients.tasks == ("task0", "task1")


def test_tasks_of_one_name_are_told_apart_by_the_folders_above(atlas, image_sets):
    folders = (image_sets / "task1", image_sets / "again" / "task1")
    code, printed, _ = atlas("adapt", "add", *folders, "--method", "uniform", *QUICK_ARITHMETIC)
    assert code == 0
    assert "again/task1" in printed


def test_an_unknown_method_is_refused_with_the_nearest(atlas, image_sets):
    folders = (image_sets / "task0", image_sets / "task1")
    code, _, err = atlas("adapt", "add", *folders, "--method", "unifrom")
    assert code == 1
    assert "Did you mean" in err


# ---- a budget of task vectors


def test_a_budget_is_written_into_the_recipe(colours, tmp_path, capsys):
    recipe = tmp_path / "mine.atlas.safetensors"
    words = ["--method", "atlas", "--budget", "2", "--select", "features", "-o", str(recipe), *QUICK]
    assert main(["adapt", "few-shot", str(colours), *words]) == 0
    capsys.readouterr()
    loaded = Recipe.load(recipe)
    assert (loaded.config["budget"], loaded.config["select"]) == (2, "features")
    assert int(loaded.coefficients.table.any(dim=1).sum()) == 2
    assert main(["adapt", "few-shot", str(colours), "--budget", "0"]) == 2
    assert "budget is 0 but must be at least 1" in capsys.readouterr().err
