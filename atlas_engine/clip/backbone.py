"""One interface for every dual encoder: image tower, text tower, transforms, logit scale.

Knows nothing of banks, images on disk or caches. How a model is named:

    bundled                        the model that ships in assets/model
    ViT-B-32/openai                ARCH/PRETRAINED as open_clip spells them; fetched from the hub once
    hf-hub:org/name                an open_clip model on the hub
    ViT-B-32@path/to/weights       ARCH@path to a local safetensors or .pt file (weights only, no pickle)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

__all__ = ["Backbone", "Preprocessing", "open_backbone"]


@dataclass(frozen=True)
class Preprocessing:
    """How pixels become the image tower's input: numbers only, so that anyone can carry it out."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resize: str = "shortest"  # or "squash"
    interpolation: str = "bicubic"  # or "bilinear"


@dataclass(frozen=True)
class Backbone:
    """A dual encoder, ready to use and never written to.

    `visual` maps images (B 3 H W) to features (B D), not normalised; `text` maps sentences to (N D), also not
    normalised. Logits are `logit_scale` times the cosine.
    """

    name: str
    visual: nn.Module
    preprocessing: Preprocessing
    logit_scale: float
    dim: int
    templates: str
    device: torch.device
    text: Callable[[Sequence[str]], Tensor] = field(repr=False)
    whole: Callable[[], nn.Module] = field(repr=False)  # the open_clip model that both towers belong to

    def as_input(self, images: Tensor) -> Tensor:
        """Images (B 3 S S) in 0 … 1 as the image tower wants them, on the device."""
        shape = self.preprocessing
        mean, std = torch.tensor(shape.mean).view(3, 1, 1), torch.tensor(shape.std).view(3, 1, 1)
        return ((images - mean) / std).to(self.device)

    def __repr__(self) -> str:
        millions = sum(weight.numel() for weight in self.visual.parameters()) / 1e6
        size = self.preprocessing.size
        return f"Backbone({self.name}, {millions:.1f} M image weights, {size} px, on {self.device.type})"


def open_backbone(model: str = "bundled", *, device: torch.device) -> Backbone:
    """The model called `model`, on `device`, in evaluation mode with every weight frozen."""
    from atlas_engine.clip import bundled, models

    if model in ("bundled", bundled.NAME):
        return bundled.load(device)
    return models.load(model, device)
