"""An image tower alone, without a text tower: OpenAI's CLIP ViT-B/16, for tests and measurements.

    clip-vit-b-16-visual                  the tower at 224 px, which `atlas model fetch` puts on this machine
    clip-vit-b-16-visual-128              the same at 128 px: its position embeddings are interpolated
    clip-vit-b-16-visual-128@FILE         the same from a file

No class name can be read in its space. Class embeddings come from the caller (`class_embeddings` of
`atlas.open`) or, in few-shot adaptation, from the support: the prototypes of its classes. The tower has no
place among the models that users are offered.

A file holds the tower's weights under open_clip's names. Its sizes are read from their shapes; heads are 64
wide and the activation is QuickGELU, as in every ViT of OpenAI's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from atlas_engine import runtime
from atlas_engine.clip.backbone import Backbone, Preprocessing
from atlas_engine.clip.checkpoints.activation import QUICK_GELU
from atlas_engine.clip.checkpoints.checkpoint import open_checkpoint
from atlas_engine.config import cache_folder
from atlas_engine.errors import ModelError

__all__ = ["NAME", "build_tower", "is_visual_tower", "load", "tower_path"]

NAME = "clip-vit-b-16-visual"
FILE_VARIABLE = "ATLAS_CLIP_TOWER"
HEAD_WIDTH = 64  # of attention, in every ViT of OpenAI's
LOGIT_SCALE = 100.0  # OpenAI's, where training had clipped it
MEAN = (0.48145466, 0.4578275, 0.40821073)  # OpenAI's input normalisation
STD = (0.26862954, 0.26130258, 0.27577711)
POSITIONS = "positional_embedding"
_MODEL = re.compile(rf"{NAME}(?:-(\d{{1,4}}))?")


def is_visual_tower(model: str) -> bool:
    """Whether `model` names this tower, at any size and from any file."""
    return _MODEL.fullmatch(model.partition("@")[0]) is not None


def tower_path() -> Path:
    """Where the tower is looked for: the file `ATLAS_CLIP_TOWER`, or one in the cache folder."""
    named = os.environ.get(FILE_VARIABLE)
    return Path(named).expanduser() if named else cache_folder() / "models" / f"{NAME}.safetensors"


def load(model: str, device: torch.device) -> Backbone:
    """The tower that `model` names on `device`, frozen and in evaluation mode, without a text tower."""
    name, _, file = model.partition("@")
    match = _MODEL.fullmatch(name)
    assert match is not None, "ask is_visual_tower first"
    path = Path(file).expanduser() if file else tower_path()
    if not file and not path.is_file():
        raise ModelError(
            f"{NAME} is not on this machine. Run `atlas model fetch {NAME}`, or set {FILE_VARIABLE} to its "
            "file."
        )
    with open_checkpoint(path) as checkpoint:
        weights = {block: checkpoint.read(block) for block in checkpoint.shapes}
    visual = build_tower(weights, size=int(match[1]) if match[1] else None)
    return Backbone(
        name=name,  # saved in recipes: no folder of this machine
        visual=visual.to(device).eval().requires_grad_(False),
        preprocessing=Preprocessing(size=visual.image_size[0], mean=MEAN, std=STD),
        logit_scale=LOGIT_SCALE,
        dim=visual.output_dim,
        templates="plain",
        activation=QUICK_GELU,
        device=device,
        encode_text=None,
    )


def build_tower(weights: Mapping[str, Tensor], *, size: int | None = None) -> Any:  # noqa: ANN401 - no types
    """open_clip's ViT with these weights, for images of `size` px; None is the size it was trained at."""
    runtime.ensure_torchvision()
    from open_clip.model import resize_pos_embed
    from open_clip.transformer import QuickGELU, VisionTransformer

    try:
        width, _, patch, _ = weights["conv1.weight"].shape
        grid = round((len(weights[POSITIONS]) - 1) ** 0.5)
        layers = 1 + max(int(name.split(".")[2]) for name in weights if ".resblocks." in name)
        output_dim = weights["proj"].shape[1]
    except (KeyError, ValueError, IndexError) as error:
        raise ModelError(
            f"the file holds no CLIP image tower of open_clip's names ({error}). Fetch it again with "
            f"`atlas model fetch {NAME}`."
        ) from error
    if size is not None and (size < patch or size % patch):
        raise ModelError(
            f"images of {size} px cannot be cut into patches of {patch}. Give a multiple of {patch}."
        )
    tower: nn.Module = VisionTransformer(
        image_size=size or grid * patch,
        patch_size=patch,
        width=width,
        layers=layers,
        heads=max(1, width // HEAD_WIDTH),
        mlp_ratio=4.0,
        output_dim=output_dim,
        act_layer=QuickGELU,
    )
    # fit the position embeddings to the size, as open_clip does for a whole CLIP
    positions = {f"visual.{POSITIONS}": weights[POSITIONS].float()}
    resize_pos_embed(positions, SimpleNamespace(visual=tower))
    try:
        tower.load_state_dict({**weights, POSITIONS: positions[f"visual.{POSITIONS}"]})
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"the file does not fit a ViT of its sizes: {reason}. Fetch it again.") from error
    return tower
