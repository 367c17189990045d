"""What the files beside a checkpoint say about it."""

from __future__ import annotations

import json

from atlas_engine import runtime
from atlas_engine.clip.checkpoints.sidecar import configured_activation, reported_accuracies


def test_accuracies_come_from_a_model_card_or_from_the_papers_lists(tmp_path):
    folder = tmp_path / "CarsVal"
    folder.mkdir()
    assert reported_accuracies(folder / "finetuned.pt") == (None, None)
    (tmp_path / "zeroshot_accuracies.json").write_text('{"Cars": 0.1, "CarsVal": 0.595}')
    (tmp_path / "ft_accuracies.json").write_text('{"CarsVal": 0.776}')
    assert reported_accuracies(folder / "finetuned.pt") == (0.595, 0.776)
    (folder / "README.md").write_text(
        "# Card\n\n- pre-trained: 0.5987\n- fine-tuned: 0.7819\n\npre-trained: 9\n"
    )
    assert reported_accuracies(folder / "finetuned.pt") == (0.5987, 0.7819)


def test_the_activation_is_read_from_the_config_beside_the_weights(tmp_path):
    runtime.ensure_torchvision()
    import transformers

    transformers.CLIPVisionConfig().save_pretrained(tmp_path)
    assert configured_activation(tmp_path / "model.safetensors") == "quick_gelu"
    (tmp_path / "config.json").write_text(json.dumps({"vision_config": {"hidden_act": "gelu"}}))
    assert configured_activation(tmp_path / "model.safetensors") == "gelu"
    (tmp_path / "config.json").write_text("[1")
    assert configured_activation(tmp_path / "model.safetensors") is None
