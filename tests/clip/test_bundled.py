"""The model that ships."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors import safe_open
from torch.nn import functional as F

from atlas_engine.clip import bundled
from atlas_engine.clip.bundled import SEMANTIC_DIM, SEMANTIC_NORM
from atlas_engine.engine import open as open_atlas
from atlas_engine.errors import ModelError


def test_every_file_of_the_model_is_the_recorded_one():
    assert all(good for _, good, _ in bundled.check())


def test_the_weights_are_half_precision_under_12_megabytes_and_hold_no_text_transformer():
    path = bundled.weights_path()
    assert path.stat().st_size < 12_000_000
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        assert not [name for name in names if name.startswith("text.transformer.")]
        assert {file.get_tensor(name).dtype for name in names} <= {torch.float16, torch.int64}


def test_the_tower_is_in_evaluation_mode_with_every_weight_frozen(engine):
    visual = engine.backbone.visual
    assert not visual.training
    assert not any(weight.requires_grad for weight in visual.parameters())


def test_the_text_tower_says_what_minilm_says(engine):
    """Near things are near and far things far, in the space of the published encoder."""
    clip = engine.backbone.whole()
    text = engine.backbone.text
    with torch.inference_mode():
        units = F.normalize(text(["a cat", "a kitten", "a power station"]), dim=-1)
    near, far = float(units[0] @ units[1]), float(units[0] @ units[2])
    assert near > 0.5 > far
    assert tuple(clip.text.proj.weight.shape) == (bundled.DIM, 384)


def test_a_sentence_reads_the_same_alone_and_beside_a_longer_one(engine):
    with torch.inference_mode():
        alone = engine.backbone.text(["otter"])
        beside = engine.backbone.text(["otter", "a very long sentence about an otter that swims in a river"])
    # Padding is masked; what differs is the order of float32 sums.
    torch.testing.assert_close(alone[0], beside[0], atol=1e-4, rtol=1e-4)


def test_looks_keep_pictures_apart_and_change_no_comparison_with_words(engine):
    head = engine.backbone.visual.head
    features = torch.rand(4, 1280, generator=torch.Generator().manual_seed(0))
    words = engine.head(["cat", "dog", "rocket"])
    with torch.inference_mode():
        whole, read = head(features), head.read(features)
    torch.testing.assert_close(whole.norm(dim=-1), torch.ones(4))
    torch.testing.assert_close(whole @ words.T, read @ words[:, :SEMANTIC_DIM].T * SEMANTIC_NORM)
    assert not list(head.parameters())  # fixed, as the text tower is


def test_the_model_tells_photographs_apart(engine, examples):
    pictures = [examples / name for name in ("cat.jpg", "coffee.jpg", "rocket.jpg")]
    labels = engine.predict(pictures, ["cat", "cup of coffee", "rocket"]).labels
    assert labels == ("cat", "cup of coffee", "rocket")


def test_weights_that_were_changed_are_refused_with_a_remedy(tmp_path, monkeypatch):
    shutil.copytree(bundled.weights_path().parent, tmp_path / "model")
    path = tmp_path / "model" / bundled.weights_path().name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    monkeypatch.setenv("ATLAS_ASSETS", str(tmp_path))
    with pytest.raises(ModelError, match=r"sha256 is not the recorded one\. Run: git checkout"):
        open_atlas(cache=False)


def test_missing_weights_are_told_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_ASSETS", str(tmp_path))
    with pytest.raises(ModelError, match="Clone the whole repository"):
        open_atlas(cache=False)


def test_the_manifest_tells_where_everything_came_from():
    manifest = json.loads(bundled.weights_path().with_suffix(".json").read_text())
    assert manifest["text_tower"]["sha256"] == bundled.TEXT_SHA256
    assert manifest["settings"]["steps"] >= 100
    for name in ("words", "names", "keep"):
        assert manifest["losses"][-1][name] < manifest["losses"][0][name]
