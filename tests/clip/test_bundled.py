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
    assert all(ok for _, ok, _ in bundled.check())


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


def test_text_embeddings_of_similar_names_are_close_and_others_are_not(engine):
    with torch.inference_mode():
        features = engine.backbone.encode_text(["a cat", "a kitten", "a power station"])
    units = F.normalize(features, dim=-1)
    near, far = float(units[0] @ units[1]), float(units[0] @ units[2])
    assert near > 0.5 > far
    assert features.shape == (3, bundled.DIM)


def test_a_sentence_has_the_same_embedding_alone_and_in_a_batch_with_a_longer_one(engine):
    with torch.inference_mode():
        alone = engine.backbone.encode_text(["otter"])
        longer = "a very long sentence about an otter that swims in a river"
        batched = engine.backbone.encode_text(["otter", longer])
    # Padding is masked; what differs is the order of float32 sums.
    torch.testing.assert_close(alone[0], batched[0], atol=1e-4, rtol=1e-4)


def test_the_visual_part_changes_no_comparison_with_text(engine):
    head = engine.backbone.visual.head
    features = torch.rand(4, 1280, generator=torch.Generator().manual_seed(0))
    text = engine.head(["cat", "dog", "rocket"])
    with torch.inference_mode():
        whole, semantic = head(features), head.semantic_embedding(features)
    torch.testing.assert_close(whole.norm(dim=-1), torch.ones(4))
    torch.testing.assert_close(whole @ text.T, semantic @ text[:, :SEMANTIC_DIM].T * SEMANTIC_NORM)
    assert not list(head.parameters())  # fixed, as the text tower is


def test_the_model_classifies_the_example_images(engine, examples):
    images = [examples / name for name in ("cat.jpg", "coffee.jpg", "rocket.jpg")]
    labels = engine.predict(images, ["cat", "cup of coffee", "rocket"]).labels
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


def test_missing_weights_are_refused_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_ASSETS", str(tmp_path))
    with pytest.raises(ModelError, match="Clone the whole repository"):
        open_atlas(cache=False)


def test_the_manifest_records_the_text_tower_the_settings_and_the_losses():
    manifest = json.loads(bundled.weights_path().with_suffix(".json").read_text())
    assert manifest["text_tower"]["sha256"] == bundled.TEXT_SHA256
    assert manifest["settings"]["steps"] >= 100
    for name in ("words", "names", "keep"):
        assert manifest["losses"][-1][name] < manifest["losses"][0][name]
