"""The types that every dual encoder is given as: `Backbone`, and the `Preprocessing` of its images.

`clip.models.open_backbone` makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

__all__ = ["Backbone", "Preprocessing"]


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the image tower's input: resize, crop to `size`, then (x - mean) / std."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resize: str = "shortest"  # or "squash"
    interpolation: str = "bicubic"  # or "bilinear"


@dataclass(frozen=True)
class Backbone:
    """A dual encoder in evaluation mode, with frozen weights.

    `visual` maps images (B 3 S S) to features (B D), and `encode_text` maps N sentences to features (N D).
    Neither normalises them. Logits are `logit_scale` times the cosine of the two. A model without a text
    tower has no `encode_text`: its class embeddings come from elsewhere (`clip.visual_tower`).
    """

    name: str
    visual: nn.Module
    preprocessing: Preprocessing
    logit_scale: float
    dim: int  # D
    templates: str  # name of the template set that suits this model, of `clip.templates`
    device: torch.device
    encode_text: Callable[[Sequence[str]], Tensor] | None = field(repr=False)
    activation: str = "gelu"  # or "quick_gelu"; of the transformers

    def as_input(self, images: Tensor) -> Tensor:
        """Images (B 3 S S) in 0 … 1, normalised for the image tower and moved to its device."""
        mean = torch.tensor(self.preprocessing.mean).view(3, 1, 1)
        std = torch.tensor(self.preprocessing.std).view(3, 1, 1)
        return ((images - mean) / std).to(self.device)

    def __repr__(self) -> str:
        millions = sum(weight.numel() for weight in self.visual.parameters()) / 1e6
        size = self.preprocessing.size
        return f"Backbone({self.name}, {millions:.1f} M image weights, {size} px, on {self.device.type})"
