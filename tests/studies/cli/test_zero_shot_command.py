"""`atlas eval zero-shot`, run as a person runs it."""

from __future__ import annotations

import json

from atlas_engine.cli import main
from tests.drawn import write_pictures


def test_eval_writes_rows_and_prints_a_table(tmp_path, capsys):
    write_pictures(tmp_path / "colours", {"red": 3, "blue": 2})
    out = tmp_path / "rows.json"
    assert main(["eval", "zero-shot", str(tmp_path / "colours"), "--json", str(out)]) == 0
    (row,) = json.loads(out.read_text())
    assert (row["dataset"], row["method"], row["n_test"]) == ("colours", "zero-shot", 5)
    assert 0 <= row["low"] <= row["accuracy"] <= row["high"] <= 1
    table = capsys.readouterr().out
    assert "colours" in table
    assert "mean" in table


def test_eval_measures_the_baseline_beside_it(tmp_path, capsys):
    write_pictures(tmp_path / "colours", {"red": 1, "blue": 1})
    out = tmp_path / "rows.json"
    assert main(["eval", "zero-shot", str(tmp_path / "colours"), "--baseline", "--json", str(out)]) == 0
    assert [row["method"] for row in json.loads(out.read_text())] == ["baseline", "zero-shot"]


def test_eval_compares_template_sets(tmp_path, capsys):
    write_pictures(tmp_path / "colours", {"red": 2, "blue": 2})
    out = tmp_path / "rows.json"
    words = ["eval", "zero-shot", str(tmp_path / "colours"), "--max-test", "3", "--json", str(out)]
    assert main([*words, "--templates", "plain", "photo"]) == 0
    rows = json.loads(out.read_text())
    assert [(row["method"], row["n_test"]) for row in rows] == [
        ("zero-shot, plain", 3),
        ("zero-shot, photo", 3),
    ]
