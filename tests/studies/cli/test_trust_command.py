"""`atlas eval trust`, run as a person runs it, on drawn pictures."""

from __future__ import annotations

import json

import pytest
import torch

from atlas_engine.cli import main
from studies.trust import auroc
from tests.drawn import write_pictures

COUNTS = {"red": 9, "blue": 9, "dark_green": 9, "grey": 9}


def test_eval_trust_writes_rows_and_tables(tmp_path, capsys):
    for name in ("one", "two"):
        write_pictures(tmp_path / name, COUNTS, side=40 if name == "one" else 56)
    out = tmp_path / "trust.json"
    words = ["eval", "trust", str(tmp_path / "one"), str(tmp_path / "two"), "--shots", "2", "--seeds", "1"]
    assert main([*words, "--json", str(out)]) == 0
    rows = json.loads(out.read_text())
    assert [(row["dataset"], row["shots"], row["seed"]) for row in rows] == [("one", 2, 0), ("two", 2, 0)]
    for row in rows:
        values = row["values"]
        assert 0 <= values["ECE after"] <= 1
        assert 0 <= values["AUROC max-logit far"] <= 1
        assert values["wrong labels planted"] == 1
        assert values["copies planted"] == 4
        assert {"true x2", "inside x2", "continue: learned on"} <= values.keys()
    printed = capsys.readouterr().out
    for title in ("Probabilities", "None of these", "AUROC", "Planted mistakes", "Advice", "Learning on"):
        assert title in printed


def test_one_folder_alone_is_refused(tmp_path, capsys):
    write_pictures(tmp_path / "one", COUNTS)
    assert main(["eval", "trust", str(tmp_path / "one")]) == 1
    assert "Give two or more" in capsys.readouterr().err


def test_a_folder_of_few_classes_is_refused(tmp_path, capsys):
    for name in ("one", "two"):
        write_pictures(tmp_path / name, {"red": 9, "blue": 9})
    assert main(["eval", "trust", str(tmp_path / "one"), str(tmp_path / "two")]) == 1
    assert "but 4 are needed" in capsys.readouterr().err


@pytest.mark.parametrize(("shift", "expected"), [(10.0, 1.0), (-10.0, 0.0), (0.0, 0.5)])
def test_auroc_is_the_share_of_pairs_in_order(shift, expected):
    scores = torch.arange(5.0)
    assert auroc(scores + shift, scores) == expected
