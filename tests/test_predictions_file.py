"""Predictions as CSV and JSON: every probability comes back, and a damaged request writes nothing."""

from __future__ import annotations

import csv
import json

import pytest
import torch

import atlas_engine as atlas
from atlas_engine.errors import ConfigError

PREDICTIONS = atlas.Predictions(
    ("a.jpg", "=cmd()"), ("cat", "sea, lion"), torch.tensor([[0.75, 0.25], [0.125, 0.875]])
)


def test_csv_has_a_line_per_image_and_a_column_per_class(tmp_path):
    atlas.save_predictions(PREDICTIONS, tmp_path / "answers.csv")
    with (tmp_path / "answers.csv").open(encoding="utf-8", newline="") as file:
        first, second = list(csv.DictReader(file))
    assert first == {
        "image": "a.jpg",
        "label": "cat",
        "prob": "0.750000",
        "cat": "0.750000",
        "sea, lion": "0.250000",
    }
    assert second["label"] == "sea, lion"
    assert second["image"] == "'=cmd()", "a spreadsheet must not take a file name for a formula"


def test_json_has_the_rows_of_the_library(tmp_path):
    atlas.save_predictions(PREDICTIONS, tmp_path / "answers.json")
    assert json.loads((tmp_path / "answers.json").read_text()) == PREDICTIONS.as_rows(2)


@pytest.mark.parametrize("name", ["answers.xlsx", "none/answers.csv"])
def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path, name):
    with pytest.raises(ConfigError, match=r"Rename it|Create it first"):
        atlas.save_predictions(PREDICTIONS, tmp_path / name)
    assert not list(tmp_path.iterdir())
