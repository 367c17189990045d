"""Which activation function a weights file was trained with: the weights themselves do not show it.

    find_activation("ViT-B-32.pt")                           # "quick_gelu": OpenAI's archive
    find_activation("mine.safetensors")                      # None: nothing in it or beside it tells

OpenAI's CLIP, and some others, compute x · σ(1.702 x), open_clip's `QuickGELU`, where the other models have
GELU. With the wrong one a model answers nearly as well, so nobody notices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from torch import nn

from atlas_engine import runtime
from atlas_engine.clip.checkpoints.checkpoint import open_checkpoint
from atlas_engine.clip.checkpoints.sidecar import configured_activation
from atlas_engine.clip.checkpoints.whole_clip import OPENAI_SIZES
from atlas_engine.errors import ModelError
from atlas_engine.files import sha256_of

__all__ = ["DECLARED_HASH", "GELU", "QUICK_GELU", "activation_of", "find_activation"]

GELU, QUICK_GELU = "gelu", "quick_gelu"  # as `transformers` calls them
DECLARED_HASH = re.compile(r"/([0-9a-f]{64})/[^/]+$|-([0-9a-f]{8})\.\w+$")
"""The sha256 in a url: OpenAI's last folder, or the first digits at the end of open_clip's file names."""


def find_activation(path: Path | str) -> str | None:
    """`quick_gelu` or `gelu` (a config may name another one too); None if nothing tells.

    The first of these that tells decides: the modules pickled in the file, the config beside it, the sizes
    that OpenAI's state dicts carry, open_clip's list of published weights.
    """
    path = Path(path)
    try:
        with open_checkpoint(path) as file:
            class_names = {name.rpartition(".")[2] for name in file.class_names}
            is_openai = all(name in file.shapes for name in OPENAI_SIZES)
    except ModelError:  # whoever loads the weights says what is wrong with the file
        return None
    if "QuickGELU" in class_names:
        return QUICK_GELU
    if "GELU" in class_names:
        return GELU
    return configured_activation(path) or (QUICK_GELU if is_openai else _published_activation(path))


def activation_of(module: nn.Module) -> str:
    """The activation function of an open_clip model or of one of its towers."""
    return QUICK_GELU if any(type(m).__name__ == "QuickGELU" for m in module.modules()) else GELU


def _published_activation(path: Path) -> str | None:
    """The activation of the published weights that this file is, by open_clip's list of them."""
    runtime.ensure_torchvision()
    import open_clip

    for model, tag in open_clip.list_pretrained():
        config = open_clip.get_pretrained_cfg(model, tag)
        if _is_published_file(path, config):
            return QUICK_GELU if config.get("quick_gelu") else GELU
    return None


def _is_published_file(path: Path, config: Mapping[str, Any]) -> bool:
    """Whether the file lies in the hub client's folder of these weights, or has their name and sha256."""
    hub_id = "/".join(str(config.get("hf_hub") or "").split("/")[:2])
    if hub_id and f"models--{hub_id.replace('/', '--')}" in path.absolute().parts:
        return True
    url = str(config.get("url") or "")
    if PurePosixPath(url).name != path.name:
        return False
    declared = DECLARED_HASH.search(url)
    return declared is None or sha256_of(path).startswith(declared[1] or declared[2])
