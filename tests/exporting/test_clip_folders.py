"""Exported folders, read by the libraries that they are for: open_clip and `transformers`."""

from __future__ import annotations

import dataclasses
import json
import runpy
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image as PILImage
from safetensors.torch import load_file

import atlas_engine as atlas
from atlas_engine.bank import TaskVectorBank, load_bank
from atlas_engine.calibration import Calibration
from atlas_engine.engine import Atlas
from atlas_engine.errors import ExportError
from atlas_engine.library import prepare
from tests.exporting.models import CLASSES, make_recipe, session_with_bank
from tests.standins import stand_in

SAME_LOGITS = 1e-3  # the same sums in another order; logits are up to 20


@pytest.fixture(scope="module")
def images():
    draw = np.random.default_rng(0)
    return [atlas.read_image(draw.integers(0, 256, (32, 32, 3), dtype=np.uint8), name="n") for _ in range(3)]


@pytest.mark.parametrize("head", ["none", "linear-probe"])
def test_transformers_loads_the_folder_and_gives_the_same_logits(head, images, tmp_path):
    import transformers

    # a temperature is inside, in both of its models
    recipe = dataclasses.replace(make_recipe(head), calibration=Calibration(temperature=2.0))
    engine = session_with_bank()
    written = recipe.export(tmp_path / "model", engine=engine, format="transformers")
    model = transformers.AutoModelForImageClassification.from_pretrained(
        written.folder, trust_remote_code=True
    ).eval()
    assert tuple(model.config.id2label[number] for number in range(3)) == CLASSES
    pixels = engine.backbone.as_input(engine.pixels(images).float() / 255)
    wanted = engine.logits(recipe, engine.pixels(images)) / 2.0
    with torch.no_grad():
        assert torch.allclose(model(pixel_values=pixels).logits, wanted, atol=SAME_LOGITS)
    # the images of 32 × 32 pixels need no resize, so its own processor gives the same input
    processor = transformers.CLIPImageProcessor.from_pretrained(written.folder)
    own = processor([PILImage.fromarray(image.pixels) for image in images], return_tensors="pt")
    assert torch.allclose(own["pixel_values"], pixels, atol=1e-5)
    # the file for transformers.js has the names that its conventions want
    browser = written.folder / "transformers.js"
    session = onnxruntime.InferenceSession(browser / "onnx" / "model.onnx")
    (logits,) = session.run(["logits"], {"pixel_values": pixels[:1].numpy()})
    assert np.abs(logits - wanted[:1].numpy()).max() < SAME_LOGITS
    small = onnxruntime.InferenceSession(browser / "onnx" / "model_quantized.onnx")
    (rounded,) = small.run(["logits"], {"pixel_values": pixels[:1].numpy()})
    assert np.abs(rounded - logits).max() < 0.2 * np.abs(logits).max()
    assert json.loads((browser / "config.json").read_text())["id2label"]["1"] == CLASSES[1]
    assert (browser / "preprocessor_config.json").is_file()


def test_other_heads_and_other_towers_are_refused_for_transformers(engine, examples, tmp_path):
    with pytest.raises(
        ExportError, match=r"the head 'tip' compares images with its keys.* Export it as onnx"
    ):
        session_with_bank().export(make_recipe("tip"), tmp_path / "a", format="transformers")
    apples = atlas.Recipe.load(examples / "apples" / "recipe.atlas.safetensors")
    with pytest.raises(ExportError, match=r"is not a ViT as CLIP has them.* Export it as onnx, html"):
        engine.export(apples, tmp_path / "b", format="transformers")
    assert not list(tmp_path.iterdir())


def test_the_lines_for_open_clip_run_and_say_the_same(tmp_path, monkeypatch, capsys):
    *_, ready = prepare(stand_in(tmp_path / "hub"), cache=False)
    engine = ready.engine
    recipe = _zero_shot_recipe(engine, load_bank(engine.bank_path))
    written = engine.export(recipe, tmp_path / "model", format="openclip")
    names = ["classes.json", "head.safetensors", "image_tower.safetensors", "run.py"]
    assert [name for name, _ in written.files] == names
    tower = load_file(written.folder / "image_tower.safetensors")
    assert torch.equal(tower["visual.proj"], engine.adapted(recipe).state_dict()["proj"])
    photo = tmp_path / "photo.png"
    PILImage.fromarray(np.random.default_rng(1).integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(photo)
    monkeypatch.chdir(written.folder)
    monkeypatch.setattr(sys, "argv", ["run.py", str(photo)])
    runpy.run_path("run.py")
    best = engine.compare([photo], recipe).adapted.top(1)[0][0]
    assert capsys.readouterr().out.splitlines()[0] == f"{best.prob:6.1%}  {best.label}"


def test_the_bundled_model_comes_under_open_clips_names_with_its_head(engine, examples, tmp_path):
    recipe = atlas.Recipe.load(examples / "apples" / "recipe.atlas.safetensors")
    written = engine.export(recipe, tmp_path / "model", format="openclip")
    assert json.loads((written.folder / "classes.json").read_text()) == list(recipe.classes)
    head = load_file(written.folder / "head.safetensors")
    assert tuple(head["weight"].shape) == (5, 2816)
    assert torch.allclose(head["bias"], recipe.head["bias"].float())
    assert "run.py" not in dict(written.files), "open_clip has no such model by name"


def _zero_shot_recipe(engine: Atlas, bank: TaskVectorBank) -> atlas.Recipe:
    """A recipe that moves every block, under the class names alone."""
    from atlas_engine.compose.coefficients import Coefficients, Layout

    layout = Layout()
    values = torch.full(layout.shape(len(bank.tasks), bank.blocks), 0.2)
    return atlas.Recipe(
        coefficients=Coefficients(values, layout, bank.tasks, bank.blocks),
        model=engine.backbone.name,
        model_fingerprint=engine.fingerprint,
        bank_fingerprint=bank.fingerprint,
        classes=("cat", "dog"),
    )
