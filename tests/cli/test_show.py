"""`atlas show` reads a recipe without its model or bank, and refuses what is none."""

from __future__ import annotations

import json

import pytest
import torch

from atlas_engine.bank.blocks import block_table
from atlas_engine.cli.command import Row
from atlas_engine.cli.frame import main
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.recipe import Recipe

ROWS = (Row("show", "", "Print a recipe.", "atlas_engine.cli.show:SHOW"),)
BLOCKS = block_table([("conv1.weight", torch.zeros(4, 3, 2, 2)), ("proj", torch.zeros(4, 2))])


def save(path, values, layout):
    coefficients = Coefficients(torch.tensor(values), layout, ("cars", "signs"), BLOCKS)
    recipe = Recipe(
        coefficients,
        model="ViT-B-32/openai",
        model_fingerprint="a" * 64,
        bank_fingerprint="b" * 64,
        classes=("otter", "seal"),
        method="few-shot",
        config={"lr": 0.1},
    )
    recipe.save(path)
    return str(path)


def test_it_prints_where_a_recipe_comes_from_and_its_heaviest_task_first(tmp_path, capsys):
    path = save(tmp_path / "r.safetensors", [[0.1, 0.0], [0.5, -1.5]], Layout())
    assert main(["show", path], rows=ROWS, groups={}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["classes", "otter,", "seal"] for line in lines)
    assert any(line.split() == ["config", "lr=0.1"] for line in lines)
    assert lines[-2].split() == ["signs", "-0.5", "1", "-1.5", "proj"]
    assert lines[-1].split() == ["cars", "0.05", "0.05", "0.1", "conv1.weight"]


@pytest.mark.parametrize(
    ("values", "layout"),
    [
        ([0.0, 2.0], Layout("isotropic")),
        ([[[0.0, 0.0], [0.0, 0.0]], [[2.0, 2.0], [2.0, 2.0]]], Layout(partitions=2)),
    ],
    ids=["isotropic", "x2"],
)
def test_json_has_every_fact_for_every_layout(tmp_path, capsys, values, layout):
    path = save(tmp_path / "r.safetensors", values, layout)
    assert main(["show", path, "--json"], rows=ROWS, groups={}) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["model_fingerprint"] == "a" * 64
    assert shown["tasks"][0] == {
        "task": "signs",
        "mean": 2.0,
        "mean_size": 2.0,
        "largest": 2.0,
        "at_block": "conv1.weight",
    }


def test_what_is_no_recipe_is_one_line_on_stderr(tmp_path, capsys):
    (tmp_path / "r").write_bytes(b"GIF89a")
    assert main(["show", str(tmp_path / "r")], rows=ROWS, groups={}) == 1
    told = capsys.readouterr()
    assert not told.out
    assert told.err.count("\n") == 1
    assert "is not a recipe" in told.err
