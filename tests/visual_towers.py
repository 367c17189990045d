"""Image towers without text for tests: a small one in a file, and CLIP's own where this machine has it."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from atlas_engine import runtime
from atlas_engine.clip.models import open_backbone
from atlas_engine.clip.visual_tower import FILE_VARIABLE, NAME
from atlas_engine.engine import Atlas

SMALL = {"width": 128, "patch_size": 8, "image_size": 32, "layers": 2, "heads": 2, "output_dim": 16}
CPU = torch.device("cpu")


@functools.cache
def small_visual() -> nn.Module:
    """A small ViT as OpenAI builds them: heads of 64, QuickGELU. Shared between tests: only read it."""
    runtime.ensure_torchvision()
    from open_clip.transformer import QuickGELU, VisionTransformer

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return VisionTransformer(**SMALL, mlp_ratio=4.0, act_layer=QuickGELU).eval()


def write_small_tower(path: Path) -> str:
    """Write the small tower to a file; return the name that opens it."""
    save_file({name: weights.contiguous() for name, weights in small_visual().state_dict().items()}, path)
    return f"{NAME}@{path}"


def small_engine(path: Path, **more: object) -> Atlas:
    """A session with the small tower, written to `path`."""
    return Atlas(open_backbone(write_small_tower(path), device=CPU), **more)


def real_tower_name(size: int = 128) -> str:
    """The name that opens CLIP's own tower; the test is skipped where this machine has no file of it."""
    given = os.environ.get(FILE_VARIABLE)
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(given) if given else folder / "atlas-studio" / "models" / f"{NAME}.safetensors"
    if not path.is_file():
        pytest.skip(f"CLIP's image tower is not on this machine; atlas model fetch {NAME} puts it there")
    return f"{NAME}-{size}@{path}"
