"""What cannot come to anything is refused while it is early: in one line, before a model is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlas_engine.cli import main
from tests.drawn import write_pictures


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """The one line that a command says, in an empty folder where no model can be opened."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATLAS_ASSETS", str(tmp_path / "no assets"))

    def run(*words):
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        assert (code, printed.out) == (2, ""), printed.err
        assert printed.err.count("\n") == 1
        return printed.err

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("adapt", "few-shot", "photos", "-o"),
        ("adapt", "test-time", "photos", "--classes", "red,blue", "-o"),
        ("adapt", "negate", "--target", "photos", "--control", "photos", "-o"),
        ("adapt", "add", "photos", "photos", "-o"),
        ("bank", "compress", "bank.safetensors", "--storage", "int8", "-o"),
        ("bank", "import", "checkpoint.pt", "-o"),
        ("model", "align", "--named", "photos", "--work", "work", "-o"),
        ("eval", "task-vectors", "photos", "--markdown"),
        ("eval", "negate", "photos", "--control", "photos", "--json"),
    ],
)
def test_a_file_in_no_folder_is_refused_before_the_work(refused, words):
    assert "in a folder that exists" in refused(*words, "nowhere/result")
    assert "in a folder that exists" in refused(*words, ".")


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (("predict", "cat.png", "--classes", "cat,dog", "--top"), "0"),
        (("predict", "cat.png", "--classes", "cat,dog", "--top"), "-1"),
        (("eval", "zero-shot", "photos", "--max-classes"), "0"),
        (("eval", "zero-shot", "photos", "--max-test"), "0"),
        (("eval", "selection", "photos", "--budgets"), "1,0"),
    ],
)
def test_a_count_below_one_is_refused(refused, words, number):
    assert "must be a whole number of at least 1" in refused(*words, number)


def test_no_class_at_all_is_refused(refused):
    for words in (("predict", "cat.png"), ("adapt", "test-time", "photos")):
        assert "give at least one" in refused(*words, "--classes", " , ")


def test_a_query_that_cannot_be_read_is_found_before_anything_is_learned(tmp_path, capsys):
    write_pictures(tmp_path / "photos", {"red": 2, "blue": 2})
    output = tmp_path / "r.safetensors"
    words = ["adapt", "few-shot", str(tmp_path / "photos"), "--query", str(tmp_path / "none.png")]
    assert main([*words, "-o", str(output)]) == 1
    printed = capsys.readouterr()
    assert "none.png" in printed.err
    assert "adapting" not in printed.err
    assert not output.exists()


def test_a_work_folder_that_is_a_file_is_refused(refused):
    Path("taken").touch()
    assert "cannot make the folder taken" in refused("model", "align", "--named", "photos", "--work", "taken")
