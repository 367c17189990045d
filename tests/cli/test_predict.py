"""`atlas predict`, run as a person runs it."""

from __future__ import annotations

import json

import pytest

from atlas_engine.cli import main
from tests.drawn import write_pictures


def test_predict_prints_a_line_an_image(examples, capsys):
    assert main(["predict", str(examples / "cat.jpg"), "--classes", "cat, dog", "--no-cache"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("cat.jpg  cat ")
    assert printed.out.count("\n") == 1


def test_predict_takes_folders_and_prints_json(examples, tmp_path, capsys):
    write_pictures(tmp_path / "set", {"red": 1, "blue": 2})
    assert main(["predict", str(tmp_path / "set"), "--classes", "red,blue", "--json", "--top", "1"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 3
    assert all(len(row["top"]) == 1 and 0 < row["prob"] <= 1 for row in rows)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere.jpg", "--classes", "a,b"], "nowhere.jpg"),
        (["{cat}", "--classes", "cat"], "at least 2 are needed"),
        (["{cat}", "--classes", "cat,dog", "--model", "ViT-B-33/openai"], "Did you mean"),
        (["{cat}", "--classes", "cat,dog", "--templates", "fotos"], "template set 'fotos' is not known"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_1(words, sentence, examples, capsys):
    words = [word.replace("{cat}", str(examples / "cat.jpg")) for word in words]
    assert main(["predict", *words]) == 1
    err = capsys.readouterr().err
    assert sentence in err
    assert err.startswith("atlas: ")
    assert len(err.splitlines()) == 1


def test_templates_may_be_repeated_and_a_recipe_has_its_own(examples, capsys):
    words = ["predict", str(examples / "cat.jpg"), "--json", "--no-cache"]
    probs = []
    for templates in (["photo"], ["oxford-pets"], ["photo", "oxford-pets"]):
        flags = [word for name in templates for word in ("--templates", name)]
        assert main([*words, "--classes", "cat,dog", *flags]) == 0
        probs.append(json.loads(capsys.readouterr().out)[0]["prob"])
    assert len(set(probs)) == 3
    assert main([*words, "--recipe", "mine.safetensors", "--templates", "photo"]) == 2
    assert "a recipe has templates of its own" in capsys.readouterr().err
