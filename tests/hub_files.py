"""What public repositories hold, at the smallest size: a CLIP and its fine-tunings in their true formats."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from tests.pickled import save_pickled_encoder
from tests.standins import CONFIG, small_model

MODEL = "lab/tiny-clip"
CHECKPOINTS = {
    "cars": "lab/clip-vit-tiny-patch8_cars",  # a `transformers` vision tower, without its projection
    "textures": "lab/textures",  # open_clip's weights
    "signs": "lab/atlas/ViT/SignsVal/finetuned.pt",  # the paper's pickle of a whole module
    "digits": "lab/atlas/ViT/DigitsVal/finetuned.pt",  # the paper's state dict
}
ADAPTER = "lab/kites"


def write_repositories(folder: Path) -> Path:
    """The repositories of `MODEL`, `CHECKPOINTS` and `ADAPTER` below `folder`."""
    clip = small_model(0, quick_gelu=True)
    model = folder / MODEL
    model.mkdir(parents=True)
    config = {
        "model_cfg": CONFIG | {"quick_gelu": True},
        "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3},
    }
    (model / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(_state(clip), model / "open_clip_model.safetensors")
    _write_vision_tower(folder / CHECKPOINTS["cars"])
    for seed, task in enumerate(("textures", "signs", "digits")):
        place = folder / CHECKPOINTS[task]
        place = place if place.suffix else place / "open_clip_pytorch_model.bin"
        place.parent.mkdir(parents=True)
        tuned = _tuned(clip, seed=seed)
        save_pickled_encoder(tuned, place) if task == "signs" else torch.save(_state(tuned), place)
    _write_adapter(folder / ADAPTER)
    return folder


def _write_adapter(folder: Path) -> None:
    """PEFT's two files, for one module of the image tower and one of the text tower."""
    folder.mkdir(parents=True)
    width, draw = CONFIG["vision_cfg"]["width"], torch.Generator().manual_seed(7)
    modules = (
        "vision_model.encoder.layers.0.self_attn.q_proj",
        "text_model.encoder.layers.0.self_attn.q_proj",
    )
    factors = {
        f"base_model.model.{module}.lora_{half}.weight": torch.randn(shape, generator=draw)
        for module in modules
        for half, shape in (("A", (2, width)), ("B", (width, 2)))
    }
    save_file(factors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")


def _write_vision_tower(folder: Path) -> None:
    import transformers

    vision = CONFIG["vision_cfg"]
    config = transformers.CLIPVisionConfig(
        hidden_size=vision["width"],
        intermediate_size=4 * vision["width"],
        num_hidden_layers=vision["layers"],
        num_attention_heads=vision["width"] // vision["head_width"],
        image_size=vision["image_size"],
        patch_size=vision["patch_size"],
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        transformers.CLIPVisionModel(config).save_pretrained(folder)
    (folder / "README.md").write_text("- pre-trained: 0.44\n- fine-tuned: 0.97\n", encoding="utf-8")


def _state(clip: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone().contiguous() for name, tensor in clip.state_dict().items()}


def _tuned(clip: nn.Module, *, seed: int) -> nn.Module:
    draw, tuned = torch.Generator().manual_seed(seed), copy.deepcopy(clip)
    with torch.no_grad():
        for weights in tuned.visual.parameters():
            weights.add_(0.02 * torch.randn(weights.shape, generator=draw))
    return tuned
