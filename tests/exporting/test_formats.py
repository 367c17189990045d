"""Exports appear whole or not at all, and what cannot be done is one sentence with the remedy."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

import atlas_engine as atlas
from atlas_engine.bank import save_bank
from atlas_engine.errors import ExportError, RecipeError
from atlas_engine.exporting import formats
from atlas_engine.exporting.formats import FORMATS, expected_nbytes
from atlas_engine.recipe import CLASS_EMBEDDINGS
from tests.engines import tiny_engine
from tests.exporting.models import make_recipe, small_bank


def export(folder, recipe=None, **options):
    return tiny_engine().export(recipe or make_recipe(), folder, bank=small_bank(), **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"format": "onx"}, r"format 'onx' is not known\. Did you mean 'onnx'\?"),
        ({"format": "openclip", "int8": True}, r"openclip has no int8\. .* choose onnx and html"),
    ],
    ids=["format", "int8"],
)
def test_a_format_that_is_not_there_is_refused(tmp_path, options, sentence):
    with pytest.raises(ExportError, match=sentence):
        export(tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_files_is_left_as_it_is(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(ExportError, match=r"is there already and holds files\. Give the name of a new one"):
        export(tmp_path / "out")
    with pytest.raises(ExportError, match=r"is a file\. Give the name of a new folder"):
        export(tmp_path / "out" / "mine.txt")
    with pytest.raises(ExportError, match=r"there is no folder .* Create it first"):
        export(tmp_path / "none" / "out")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine.txt"]


def test_an_error_half_way_leaves_nothing(tmp_path, monkeypatch):
    def fail(_classifier, folder, *, int8=False):
        (folder / "half").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    rows = FORMATS | {"onnx": dataclasses.replace(FORMATS["onnx"], write=fail)}
    monkeypatch.setattr(formats, "FORMATS", rows)
    with pytest.raises(ExportError, match="No space left on device"):
        export(tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_recipe_of_another_model_is_refused_before_anything_is_written(engine, tmp_path):
    with pytest.raises(RecipeError, match="this recipe was made for tiny"):
        engine.export(make_recipe(), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_ten_thousand_classes_are_exported_as_any_other(tmp_path):
    classes = tuple(f"thing {number}" for number in range(10_000))
    text = torch.nn.functional.normalize(torch.randn(10_000, 16), dim=1)
    recipe = dataclasses.replace(make_recipe(), classes=classes, head={CLASS_EMBEDDINGS: text})
    written = export(tmp_path / "out", recipe, format="openclip")
    assert len(json.loads((written.folder / "classes.json").read_text())) == 10_000


def test_the_size_that_is_told_before_is_near_the_size_that_is_written(tmp_path):
    recipe = make_recipe()
    told = expected_nbytes(tiny_engine().classifier(recipe, bank=small_bank()), format="openclip")
    assert told == pytest.approx(export(tmp_path / "out", recipe, format="openclip").nbytes, rel=0.1)


def test_the_command_writes_the_folder_and_tells_its_files(tmp_path, monkeypatch, capsys):
    from atlas_engine.cli import main
    from atlas_engine.engine import Atlas

    save_bank(small_bank(), tmp_path / "bank.safetensors")
    make_recipe().save(tmp_path / "r.atlas.safetensors")
    monkeypatch.setattr(
        "atlas_engine.engine.open", lambda _model, *, bank: Atlas(tiny_engine().backbone, bank_path=bank)
    )
    words = ["export", str(tmp_path / "r.atlas.safetensors"), "--bank", str(tmp_path / "bank.safetensors")]
    assert main([*words, "-o", str(tmp_path / "out"), "--format", "openclip", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("atlas: writing about ")
    told = json.loads(printed.out)
    assert {file["name"] for file in told["files"]} >= {"classes.json", "image_tower.safetensors"}
    assert main([*words, "-o", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert atlas.Recipe.load(tmp_path / "r.atlas.safetensors") == make_recipe()
