"""`atlas eval few-shot`, run as a person runs it, on a small model and bank."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from studies.methods import Solver
from tests.cli.image_sets import BANK, require_refusal, write_image_sets

QUICK = ("--shots", "1,3", "--seeds", "2", "--max-test", "6", "--steps", "2", "--batch", "4")
NO_BANK = ("--methods", "zero-shot,tip,lpp")


@pytest.fixture(scope="module")
def image_sets(tmp_path_factory):
    """Two sets of one name in different places, and a bank."""
    sets = {
        "pacs/photo": {"red": 6, "blue": 6},
        "office/photo": {"dark_green": 6, "grey": 6},
        "task1": {"red": 6, "grey": 6},
    }
    return write_image_sets(tmp_path_factory.mktemp("eval"), sets)


@pytest.fixture
def compare(image_sets, tiny_atlas):
    def run(*words, targets=("pacs/photo", "office/photo"), bank=False):
        banked = ("--bank", image_sets / BANK) if bank else ()
        folders = [image_sets / target for target in targets]
        return tiny_atlas("eval", "few-shot", *folders, *banked, *QUICK, *words)

    return run


def test_it_writes_a_list_of_rows_and_prints_the_tables(compare, tmp_path):
    words = ("--json", "f.json", "--markdown", "f.md", "--figure", "f.svg")
    code, printed, _ = compare(*NO_BANK, *(tmp_path / word if word[0] == "f" else word for word in words))
    assert code == 0
    rows = json.loads((tmp_path / "f.json").read_text())
    assert len(rows) == 2 * 2 * 2 * 3
    assert {row["dataset"] for row in rows} == {"pacs/photo", "office/photo"}
    expected = {"dataset", "method", "shots", "seed", "accuracy", "n_test", "seconds", "fell_back"}
    assert all(expected <= set(row) for row in rows)
    assert {row["shots"] for row in rows} == {1, 3}
    titles = ("mean over 2 data sets", "Difference to zero-shot", "pacs/photo: accuracy", "Seconds to learn")
    page = (tmp_path / "f.md").read_text()
    assert all(title in printed and title in page for title in titles)
    assert "2 seed(s), all classes and at most 6 images" in printed
    texts = [element.text for element in ET.parse(tmp_path / "f.svg").iter()]
    assert {"tip", "lpp", "k = 1", "k = 3"} <= set(texts)


def test_a_number_in_the_table_is_the_mean_of_the_rows(compare, tmp_path):
    _, printed, _ = compare(*NO_BANK, "--json", tmp_path / "f.json")
    rows = json.loads((tmp_path / "f.json").read_text())
    own = [row["accuracy"] for row in rows if (row["method"], row["shots"]) == ("lpp", 3)]
    line = next(line for line in printed.splitlines() if line.startswith("lpp"))
    assert float(line.split()[4]) == pytest.approx(100 * sum(own) / len(own), abs=0.051)


def test_a_command_given_again_measures_nothing_and_says_the_same(compare, tmp_path, monkeypatch):
    first = compare(*NO_BANK, "--json", tmp_path / "f.json")
    kept = (tmp_path / "f.json.rows").read_text()
    assert len(kept.splitlines()) == 24
    monkeypatch.setattr(Solver, "text", None)
    assert compare(*NO_BANK, "--json", tmp_path / "f.json")[:2] == first[:2]
    assert (tmp_path / "f.json.rows").read_text() == kept


def test_a_stopped_command_goes_on_where_it_was(compare, tmp_path, monkeypatch):
    real, calls = Solver.text, iter(range(100))

    def text(self, problem):
        if next(calls) == 7:
            raise KeyboardInterrupt
        return real(self, problem)

    monkeypatch.setattr(Solver, "text", text)
    code, printed, _ = compare(*NO_BANK, "--json", tmp_path / "f.json")
    assert (code, printed) == (130, "")
    assert not (tmp_path / "f.json").exists()
    assert len((tmp_path / "f.json.rows").read_text().splitlines()) == 7
    assert compare(*NO_BANK, "--json", tmp_path / "f.json")[0] == 0
    assert next(calls) == 8 + 17, "24 rows in all, of which 7 were done"


def test_methods_that_mix_are_measured_with_the_bank_and_without_what_is_named(compare, tmp_path):
    words = ("--methods", "zero-shot,atlas,auto", "--shots", "3", "--json", tmp_path / "f.json")
    code, printed, _ = compare(*words, "--seeds", "1", bank=True)
    assert code == 0
    assert "(3 of float32)" in printed
    assert "What a method expects without test images" in printed
    rows = json.loads((tmp_path / "f.json").read_text())
    assert all(0 <= row["estimate"] <= 1 for row in rows if row["method"] == "auto")
    code, printed, _ = compare(*words, "--seeds", "1", "--without", "task0,task2", bank=True)
    assert code == 0
    assert "(1 of float32)" in printed
    assert len((tmp_path / "f.json.rows").read_text().splitlines()) == 2 * (3 + 2), "zero-shot has no bank"


def test_a_vector_that_was_made_from_a_target_is_named(compare):
    words = ("--methods", "atlas-iso", "--shots", "1", "--seeds", "1")
    _, _, err = compare(*words, targets=["task1"], bank=True)
    assert "vector 'task1' was made from task1" in err
    assert "--without task1" in err
    _, _, err = compare(*words, "--without", "task1", targets=["task1"], bank=True)
    assert "made from" not in err


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--methods", "zero-shot,tipp"), 2, "Did you mean 'tip'?"),
        (("--methods", ","), 2, "methods is empty"),
        (("--methods", "tip,auto,atlas"), 2, "tiny has no bank of task vectors, and auto, atlas need them"),
        (("--shots", "0"), 2, "at least 1"),
        (("--shots", "x"), 2, "Invalid value for '--shots'"),
        (("--shots", "1,6"), 1, "class 'blue' has 6 image(s), but 6 shot(s) and one to measure on need 7"),
        (("--max-classes", "1"), 2, "at least 2"),
        (("--figure", "gains.png"), 2, "must end in .svg"),
        (("--markdown", "nowhere/x.md"), 2, "a folder that exists"),
        (("--json", "nowhere/x.json"), 2, "a folder that exists"),
    ],
)
def test_bad_words_are_one_sentence(compare, tmp_path, monkeypatch, words, code, sentence):
    monkeypatch.chdir(tmp_path)
    require_refusal(compare(*NO_BANK, *words), code, sentence)
    assert list(tmp_path.iterdir()) == []


def test_bad_folders_and_vectors_are_one_sentence(compare, image_sets):
    for more, sentence in (
        ({"targets": ["pacs/photo", "pacs/photo"]}, "photo is given twice"),
        ({"targets": ["nowhere"]}, "nowhere"),
        ({"targets": ["pacs"]}, "has 1 class"),
    ):
        require_refusal(compare(*NO_BANK, **more), 1, sentence)
    code, _, err = compare("--methods", "atlas", "--without", "task9", bank=True)
    assert code == 1
    assert "task 'task9' is not known" in err
