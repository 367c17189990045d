"""`atlas show` reads a recipe without its model; with its bank it tells contributions, and draws both."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
import torch

from atlas_engine.bank import TaskVector, TaskVectorBank, save_bank
from atlas_engine.bank.blocks import block_table
from atlas_engine.cli import main
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.recipe import Recipe

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
    assert main(["show", path]) == 0
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
    assert main(["show", path, "--json"]) == 0
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
    assert main(["show", str(tmp_path / "r")]) == 1
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.count("\n") == 1
    assert "is not a recipe" in printed.err


def make_bank(path):
    """Two vectors of ones and of twos, in a file."""
    vectors = [
        TaskVector(name, {block.name: torch.full(block.shape, size) for block in BLOCKS}, "c" * 64)
        for name, size in (("cars", 1.0), ("signs", 2.0))
    ]
    bank = TaskVectorBank.from_vectors(vectors)
    save_bank(bank, path)
    return bank


def save_for(bank, path, *, model="ViT-B-32/openai"):
    """A recipe in which signs has the larger λ, but cars moves the model more."""
    save(path, [[3.0, 0.0], [0.1, 3.5]], Layout())
    replace(Recipe.load(path), bank_fingerprint=bank.fingerprint, model=model).save(path)
    return str(path)


def shown(capsys, *words):
    assert main(["show", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_with_its_bank_a_recipe_shows_how_far_each_vector_moves_the_model(tmp_path, capsys):
    bank = make_bank(tmp_path / "bank.safetensors")
    path = save_for(bank, tmp_path / "r")
    printed = shown(capsys, path, "--bank", str(tmp_path / "bank.safetensors"))
    first, second = printed["tasks"]
    cars, signs = 9 * 48, 0.2**2 * 48 + 49 * 8  # squared lengths: λ² τ² times the numbers of a block
    assert (first["task"], second["task"]) == ("cars", "signs")
    assert first["contribution"] == pytest.approx(cars**0.5)
    assert first["share"] == pytest.approx(cars / (cars + signs))
    assert printed["contributions"]["blocks"] == ["conv1.weight", "proj"]
    assert printed["contributions"]["tasks"][1]["by_block"] == pytest.approx([0.2 * 48**0.5, 7 * 8**0.5])
    assert main(["show", path, "--bank", str(tmp_path / "bank.safetensors")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-2:] == ["19.85", "0.4769"]


def test_the_models_own_bank_is_found_where_it_is_the_recipes(tmp_path, capsys, monkeypatch):
    (tmp_path / "bank").mkdir()
    monkeypatch.setenv("ATLAS_ASSETS", str(tmp_path))
    bank = make_bank(tmp_path / "bank" / "small.safetensors")
    assert "share" in shown(capsys, save_for(bank, tmp_path / "r", model="small"))["tasks"][0]
    some = bank.select(["signs", "cars"])  # a recipe of another choice of its vectors
    assert "share" not in shown(capsys, save_for(some, tmp_path / "r", model="small"))["tasks"][0]
    (tmp_path / "elsewhere.safetensors").write_bytes((tmp_path / "bank" / "small.safetensors").read_bytes())
    for model in ("other", "../elsewhere", "x" * 300):
        assert "share" not in shown(capsys, save_for(bank, tmp_path / "r", model=model))["tasks"][0]
    (tmp_path / "bank" / "small.safetensors").write_bytes(b"GIF89a")
    assert "share" not in shown(capsys, save_for(bank, tmp_path / "r", model="small"))["tasks"][0]


def test_a_bank_that_is_not_the_recipes_is_refused(tmp_path, capsys):
    make_bank(tmp_path / "bank.safetensors")
    path = save(tmp_path / "r", [[0.1, 0.0], [0.5, -1.5]], Layout())
    assert main(["show", path, "--bank", str(tmp_path / "bank.safetensors")]) == 1
    assert "with the bank bbbbbbbbbbbb, and the bank" in capsys.readouterr().err


def titles(path):
    return ET.parse(path).getroot().get("aria-label")


def test_the_figure_is_of_lambda_and_beside_it_of_contributions(tmp_path, capsys):
    bank = make_bank(tmp_path / "bank.safetensors")
    path, figure = save_for(bank, tmp_path / "r"), tmp_path / "heat.svg"
    shown(capsys, path, "--figure", str(figure))
    assert titles(figure) == "How much of each task vector is mixed in"
    assert not (tmp_path / "heat-contributions.svg").exists()
    shown(capsys, path, "--figure", str(figure), "--bank", str(tmp_path / "bank.safetensors"))
    assert titles(tmp_path / "heat-contributions.svg") == "How far each task vector moves the model"


@pytest.mark.parametrize(
    ("name", "sentence"), [("heat.png", "must end in .svg"), ("nowhere/heat.svg", "in a folder that exists")]
)
def test_a_figure_that_cannot_be_written_is_refused_at_once(tmp_path, capsys, name, sentence):
    path = save(tmp_path / "r", [[0.1, 0.0], [0.5, -1.5]], Layout())
    assert main(["show", path, "--figure", str(tmp_path / name)]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert sentence in printed.err


def test_wild_coefficients_are_shown_as_they_are(tmp_path, capsys):
    bank = make_bank(tmp_path / "bank.safetensors")
    save(tmp_path / "r", [[900.0, 900.0], [-900.0, 0.0]], Layout())
    replace(Recipe.load(tmp_path / "r"), bank_fingerprint=bank.fingerprint).save(tmp_path / "r")
    files = ("--bank", str(tmp_path / "bank.safetensors"), "--figure", str(tmp_path / "a.svg"))
    means = {row["task"]: row["mean"] for row in shown(capsys, str(tmp_path / "r"), *files)["tasks"]}
    assert means["cars"] == pytest.approx(900.0)
