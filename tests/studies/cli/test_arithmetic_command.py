"""`atlas eval negate|add`, as a person runs them, on a small model and bank."""

from __future__ import annotations

import json

import pytest

from tests.cli.image_sets import BANK, write_image_sets

BRIEF = ("--seeds", "1", "--learn", "4", "--max-test", "6", "--steps", "1")


@pytest.fixture(scope="module")
def image_sets(tmp_path_factory):
    sets = {
        "task0": {"red": 8, "blue": 8},
        "task1": {"dark_green": 8, "grey": 8},
        "control": {"grey": 8, "red": 8},
    }
    return write_image_sets(tmp_path_factory.mktemp("arithmetic"), sets, size=0.5)


@pytest.fixture
def atlas(image_sets, tiny_atlas):
    return lambda *words: tiny_atlas(*words, "--bank", image_sets / BANK)


def test_ways_to_forget_are_compared_and_nothing_is_measured_twice(atlas, image_sets, tmp_path):
    out = tmp_path / "n.json"
    words = ("eval", "negate", image_sets / "task0", "--control", image_sets / "control", *BRIEF)
    code, printed, err = atlas(*words, "--json", out, "--markdown", tmp_path / "n.md")
    assert code == 0
    assert "Forgetting: accuracy in %" in printed
    assert "95% of its zero-shot accuracy is to stay" in printed
    assert "is not known" in err, "a random vector does not say what it was made from"
    rows = json.loads(out.read_text())
    assert [row["method"] for row in rows] == ["scalar", "atlas", "atlas-bank"]
    assert (tmp_path / "n.md").read_text().startswith("**Forgetting")
    kept = out.with_name("n.json.rows").read_text()
    assert atlas(*words, "--json", out)[1] == printed
    assert out.with_name("n.json.rows").read_text() == kept


def test_ways_to_add_are_compared_on_every_task(atlas, image_sets, tmp_path):
    out = tmp_path / "a.json"
    words = ("--methods", "zero-shot,uniform,ties", *BRIEF)
    folders = (image_sets / "task0", image_sets / "task1")
    code, printed, _ = atlas("eval", "add", *folders, *words, "--json", out, "--figure", tmp_path / "a.svg")
    assert code == 0
    assert "One model for 2 tasks" in printed
    assert {(row["dataset"], row["method"]) for row in json.loads(out.read_text())} == {
        (task, method) for task in ("task0", "task1") for method in ("zero-shot", "uniform", "ties")
    }
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("eval", "add", "task0"), "at least 2 tasks"),
        (("eval", "add", "task0", "control"), "no vector for control"),
        (("eval", "negate", "task0", "--control", "nowhere"), "no such folder"),
    ],
)
def test_bad_words_are_one_sentence(words, sentence, atlas, image_sets):
    paths = [
        image_sets / word if word in ("task0", "task1", "control", "nowhere") else word for word in words
    ]
    code, _, err = atlas(*paths)
    assert code in (1, 2)
    assert sentence in err
