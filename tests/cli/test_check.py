"""`atlas check` and what `atlas adapt few-shot` says of trust, run as a person runs them."""

from __future__ import annotations

import json
import shutil

import pytest

from atlas_engine.cli import main
from tests.cli.image_sets import BANK, write_image_sets
from tests.drawn import write_pictures


@pytest.fixture(scope="module")
def folder(tmp_path_factory, examples):
    """Photographs of apples, with one pink lady among the granny smiths as well."""
    root = tmp_path_factory.mktemp("check") / "apples"
    shutil.copytree(examples / "apples" / "teach", root)
    shutil.copy(root / "pink_lady" / "1.jpg", root / "granny_smith" / "planted.jpg")
    return root


def test_check_finds_a_copy_in_another_class(folder, capsys):
    assert main(["check", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["images"] == 21
    (pair,) = [one for one in found["duplicates"] if one["across_classes"]]
    assert {"granny_smith/planted.jpg", "pink_lady/1.jpg"} == set(pair["images"])
    assert pair["cosine"] == pytest.approx(1.0, abs=1e-4)
    assert "near-duplicate pair in two classes" in found["sentence"]


def test_check_prints_a_table_and_a_sentence(folder, capsys):
    assert main(["check", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "near-duplicate" in printed
    assert printed.rstrip().endswith("among 21 images of 5 classes.")


def test_a_folder_that_is_not_there_is_one_sentence(capsys):
    assert main(["check", "nowhere"]) == 1
    err = capsys.readouterr().err
    assert "nowhere" in err
    assert err.count("\n") == 1


def test_few_shot_prints_advice_and_learns_none_of_these(tiny_atlas, tmp_path):
    root = write_image_sets(tmp_path, {"set": {"red": 3, "blue": 3}})
    write_pictures(tmp_path / "others", {"grey": 2, "dark_green": 1})
    words = ["adapt", "few-shot", root / "set", "--bank", root / BANK, "--steps", "2", "--json"]
    code, out, _ = tiny_atlas(*words, "--negatives", tmp_path / "others", "--query", tmp_path / "others")
    assert code == 0
    facts = json.loads(out)
    assert facts["advice"]["sentence"]
    assert facts["calibration"]["kept_share"] <= 6 / 7 + 1e-9  # six known images; negatives promise nothing
    assert all("none_of_these" in row for row in facts["adapted"])
