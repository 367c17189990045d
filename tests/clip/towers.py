"""Small image towers of every kind that `clip.tower_split` knows, and one that it does not."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from atlas_engine import runtime
from tests.tiny import tiny_clip

_TIMM_MODELS = {
    "efficientnet": "test_efficientnet",
    "mobilenet": "mobilenetv3_small_050",
    "tiny-vit": "tiny_vit_5m_224",
    "timm-vit": "test_vit",  # an unknown kind
}


@functools.cache
def small_tower(kind: str) -> nn.Module:
    """A small image tower in eval mode: vit, resnet or one of timm's. Shared between tests: only read it."""
    if kind not in _TIMM_MODELS:
        return tiny_clip(kind).visual
    runtime.ensure_torchvision()
    from open_clip.timm_model import TimmModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        pool = "" if kind == "timm-vit" else "avg"
        proj = "" if kind == "mobilenet" else "linear"  # its features are wider than open_clip expects
        return TimmModel(_TIMM_MODELS[kind], embed_dim=16, pool=pool, proj=proj).eval()


@torch.no_grad()
def features_of(module: nn.Module, images: Tensor) -> Tensor:
    return module(images)
