"""Stand-ins for what a hub holds: a small open_clip model with random weights and its fine-tunings, as files.

The architecture is registered with open_clip as any other, so that the model opens as `tiny-standin@FILE`.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from atlas_engine import runtime
from atlas_engine.clip.checkpoints.sources import find_sources
from atlas_engine.library import AvailableModel

ARCH = "tiny-standin"
TASKS = ("cars", "signs", "textures")
CONFIG = {
    "embed_dim": 16,
    "vision_cfg": {"layers": 2, "width": 32, "patch_size": 8, "image_size": 32, "head_width": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}


def stand_in(folder: Path, *, seed: int = 0) -> AvailableModel:
    """A model file and three checkpoints below `folder`, each in another of the formats that are read."""
    clip = small_model(seed)
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / "base.safetensors"
    save_file({name: tensor.clone().contiguous() for name, tensor in clip.state_dict().items()}, weights)
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    cars, signs, textures = (_tuned(clip.visual, seed=one) for one in range(3))
    save_file({f"visual.{name}": tensor for name, tensor in cars.items()}, checkpoints / "cars.safetensors")
    torch.save(signs, checkpoints / "signs.pt")
    wrapped = {f"module.visual.{name}": tensor for name, tensor in textures.items()}
    torch.save({"epoch": 3, "state_dict": wrapped}, checkpoints / "textures.pt")
    sources = tuple(find_sources([checkpoints]))
    return AvailableModel(f"{ARCH}@{weights}", "three checkpoints", sources, f"standin-{seed}.safetensors")


@functools.cache
def small_model(seed: int, *, quick_gelu: bool = False) -> nn.Module:
    """The whole model with random weights. Shared between tests: only read it."""
    runtime.ensure_torchvision()
    import open_clip

    if ARCH not in open_clip.list_models():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{ARCH}.json"
            path.write_text(json.dumps(CONFIG), encoding="utf-8")
            open_clip.add_model_config(path)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: nn.Module = open_clip.create_model(ARCH, force_quick_gelu=quick_gelu).eval()
    return model


def _tuned(visual: nn.Module, *, seed: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(100 + seed)
    return {
        name: tensor + 0.02 * torch.randn(tensor.shape, generator=draw)
        for name, tensor in visual.state_dict().items()
    }
