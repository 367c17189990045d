"""`atlas adapt few-shot` and `atlas predict --recipe`, run as a person runs them on the bundled model."""

from __future__ import annotations

import json
import shutil

import pytest

from atlas_engine.cli import main
from atlas_engine.recipe import Recipe
from tests.drawn import write_pictures

QUICK = ["--steps", "2", "--batch", "4", "--views", "1", "--folds", "2"]


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapt") / "colours"
    write_pictures(folder, {"red": 3, "blue": 3})
    return folder


def test_a_folder_becomes_a_recipe_that_predict_takes(colours, tmp_path, capsys):
    recipe = tmp_path / "mine.atlas.safetensors"
    query = str(next((colours / "red").iterdir()))
    assert (
        main(["adapt", "few-shot", str(colours), "-o", str(recipe), "--query", query, "--json", *QUICK]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in told["estimates"]] == [
        "zero-shot",
        "text-probe",
        "atlas+text-probe",
    ]
    assert told["sentence"]
    assert Recipe.load(recipe).classes == ("blue", "red")
    assert main(["predict", query, "--recipe", str(recipe), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["label"] == told["adapted"][0]["label"]
    assert row["prob"] == pytest.approx(told["adapted"][0]["prob"], abs=1e-4)


def test_words_for_people_hold_the_verdict_and_a_table(colours, capsys):
    assert main(["adapt", "few-shot", str(colours), "--method", "lpp", *QUICK]) == 0
    assert "lpp was asked for" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--method", "atlass"], "Did you mean"),
        (["--steps", "-1"], "steps"),
    ],
)
def test_bad_words_are_one_sentence(words, told, colours, capsys):
    assert main(["adapt", "few-shot", str(colours), *words]) in (1, 2)
    assert told in capsys.readouterr().err


def test_a_single_class_is_refused_with_what_is_needed(tmp_path, capsys):
    write_pictures(tmp_path / "one", {"red": 3, "blue": 1})
    shutil.rmtree(tmp_path / "one" / "blue")
    assert main(["adapt", "few-shot", str(tmp_path / "one")]) == 1
    assert "at least 2" in capsys.readouterr().err
