"""`atlas adapt test-time`, run as a person runs it on the bundled model."""

from __future__ import annotations

import json
import shutil

import pytest

from atlas_engine.cli import main
from atlas_engine.engine import Atlas
from atlas_engine.recipe import Recipe
from tests.cli.image_sets import BANK, write_image_sets
from tests.drawn import write_pictures
from tests.engines import tiny_engine

ASKED = ["--classes", "red,blue", "--objective", "ufm", "--steps", "2", "--batch", "4", "--views", "1"]


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("test-time") / "colours"
    write_pictures(folder, {"red": 3, "blue": 3})
    return folder


def run_json(capsys, *words):
    assert main(["adapt", "test-time", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_folder_becomes_a_recipe_and_its_labels_only_a_score(colours, tmp_path, capsys):
    """The same pictures with no labels, and with wrong ones, give the same recipe to the last bit."""
    flat, wrong = tmp_path / "flat", tmp_path / "wrong"
    flat.mkdir()
    for folder in ("red", "blue"):
        (wrong / folder).mkdir(parents=True)
    for path in sorted(colours.rglob("*.png")):
        other = {"red": "blue", "blue": "red"}[path.parent.name]
        order = "0" if path.parent.name == "blue" else "1"  # the folders' own order, kept
        shutil.copy(path, flat / f"{order}{path.name}")
        shutil.copy(path, wrong / other / path.name)
    pictures = [wrong / "red", wrong / "blue"]
    found = {}
    for name, where in (("labelled", [colours]), ("flat", [flat]), ("wrong", pictures)):
        facts = run_json(capsys, *where, *ASKED, "-o", tmp_path / f"{name}.st")
        found[name] = (Recipe.load(tmp_path / f"{name}.st"), facts["score"])
    assert found["labelled"][0] == found["flat"][0] == found["wrong"][0]
    scores = {name: score for name, (_, score) in found.items()}
    assert scores["flat"] == {"images": 0, "zero_shot_right": 0, "adapted_right": 0}
    assert scores["labelled"]["images"] == scores["wrong"]["images"] == 6
    assert scores["labelled"]["adapted_right"] + scores["wrong"]["adapted_right"] == 6


def test_words_for_people_say_that_few_pictures_stay_zero_shot(colours, capsys):
    assert main(["adapt", "test-time", str(colours), "--classes", "red,blue"]) == 0
    out = capsys.readouterr().out
    assert "Zero-shot was kept, because 6 pictures are too few" in out
    assert "which adapting never saw" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--classes", "red"], "at least 2"),
        (["--classes", "red,blue", "--objective", "umf"], "Did you mean"),
        (["--classes", "red,blue", "--steps", "-1"], "steps"),
        ([], "--classes"),
    ],
)
def test_bad_words_are_one_sentence(words, sentence, colours, capsys):
    assert main(["adapt", "test-time", str(colours), *words]) in (1, 2)
    assert sentence in capsys.readouterr().err


def test_an_empty_folder_is_refused(tmp_path, capsys):
    assert main(["adapt", "test-time", str(tmp_path), "--classes", "red,blue"]) == 1
    assert "has no JPEG, PNG or WEBP images" in capsys.readouterr().err


def test_ctrl_c_after_the_learning_does_not_lose_the_recipe(colours, tmp_path, monkeypatch, capsys):
    def stopped(*_words, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(Atlas, "compare", stopped)
    assert main(["adapt", "test-time", str(colours), *ASKED, "-o", str(tmp_path / "r.st")]) == 130
    assert Recipe.load(tmp_path / "r.st").classes == ("red", "blue")
    assert "stopped" in capsys.readouterr().err


def test_online_every_image_is_answered_when_it_arrives_and_the_last_state_is_the_recipe(
    colours, tmp_path, capsys
):
    asked = ["--classes", "red,blue", "--online", "-o", tmp_path / "r.st"]
    facts = run_json(capsys, colours, *asked)
    assert [row["label"] for row in facts["adapted"]] == [row["label"] for row in facts["zero_shot"]]
    assert facts["rolled_back"]
    assert "fewer than 40 pictures have arrived" in facts["sentence"]
    assert Recipe.load(tmp_path / "r.st").method == "zero-shot"


def test_a_baseline_answers_and_makes_no_recipe(colours, tmp_path, capsys):
    facts = run_json(capsys, colours, "--classes", "red,blue", "--objective", "ln-entropy", "--steps", "1")
    assert facts["method"] == "ln-entropy"
    assert len(facts["adapted"]) == facts["score"]["images"] == 6
    for extra in (["-o", str(tmp_path / "r.st")], ["--online"]):
        words = ["adapt", "test-time", str(colours), "--classes", "red,blue", "--objective", "ln-ufm"]
        assert main([*words, *extra]) == 2
        assert "--objective ufm" in capsys.readouterr().err


@pytest.mark.parametrize("more", [("--objective", "paper"), ("--online",), ("--objective", "ln-entropy")])
def test_templates_are_used_for_zero_shot_and_what_is_learned_in_every_way_to_adapt(
    more, tiny_atlas, tmp_path
):
    folder, bank = write_image_sets(tmp_path, {"set": {"red": 2, "blue": 2}}) / "set", tmp_path / BANK
    flags = ("--steps", "1", "--epochs", "0", "--batch", "4", "--lr", "0.001", "--share", "1")
    words = ("adapt", "test-time", folder, "--classes", "red,blue", "--bank", bank, *flags, *more, "--json")
    made = () if more[-1] == "ln-entropy" else ("-o", tmp_path / "r.st")
    code, printed, _ = tiny_atlas(*words, "--templates", "{}?", *made)
    assert code == 0
    rows = json.loads(printed)["zero_shot"]
    files = sorted(folder.rglob("*.png"))
    under, plain = (
        [row["prob"] for row in tiny_engine().predict(files, ["red", "blue"], templates=name).as_rows()]
        for name in ("{}?", "plain")
    )
    assert [row["prob"] for row in rows] == pytest.approx(under, rel=1e-5)
    assert under != pytest.approx(plain, rel=1e-2)
    if made:
        assert Recipe.load(tmp_path / "r.st").templates == ("{}?",)


def test_a_budget_does_not_go_with_a_stream(colours, capsys):
    words = ["adapt", "test-time", str(colours), "--classes", "red,blue", "--budget", "3", "--online"]
    assert main(words) == 2
    assert "--budget" in capsys.readouterr().err
