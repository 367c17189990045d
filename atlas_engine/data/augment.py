"""Random views of small squares in memory, a whole batch at once. Knows nothing of models.

views = Augment(flip=False)(pixels, generator)        # uint8 (B 3 S S) to floats in 0 … 1
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.data.filters import filtered, gaussian

__all__ = ["STRONG", "WEAK", "Augment"]

STRETCH = 0.4  # spread of the logarithm of width / height


@dataclass(frozen=True)
class Augment:
    """Crop, mirror and colours, drawn anew for each image of a batch; then grey, blur and a hole if asked."""

    smallest: float = 0.5  # side of the smallest crop, as a share
    flip: bool = True  # off where left and right differ: digits, signs, letters
    jitter: float = 0.25  # most that brightness, contrast and saturation change
    grey: float = 0.0  # share of the images that lose their colours
    blur: float = 0.0  # widest blur, as a share of the side; half of the images have none
    hole: float = 0.0  # side of the largest square cut out, as a share

    def __call__(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """uint8 (B 3 S S) to a view of each in 0 … 1. The generator is on the CPU, and alone decides."""
        draws = torch.rand(8, len(pixels), generator=generator).to(pixels.device)
        crops = F.grid_sample(
            pixels.float() / 255,
            self._grid(draws[:5], pixels.shape),
            padding_mode="reflection",
            align_corners=False,
        )
        views = _recoloured(crops, 1 + (2 * draws[5:] - 1) * self.jitter)
        return self._spoiled(views, generator) if self.grey or self.blur or self.hole else views

    def _grid(self, draws: Tensor, shape: torch.Size) -> Tensor:
        """One sampling grid an image: size, shape, mirror and place of the crop at once."""
        side = self.smallest + (1 - self.smallest) * draws[0].sqrt()  # large crops are the likelier ones
        stretch = torch.exp((draws[1] - 0.5) * STRETCH * (1 - self.smallest) * 2)
        mirror = 1 - 2 * (draws[2] < 0.5).float() * self.flip
        wide, high = (side * stretch).clamp(max=1), (side / stretch).clamp(max=1)
        affine = torch.zeros(len(side), 2, 3, device=draws.device)
        affine[:, 0, 0], affine[:, 1, 1] = wide * mirror, high
        affine[:, 0, 2], affine[:, 1, 2] = (2 * draws[3] - 1) * (1 - wide), (2 * draws[4] - 1) * (1 - high)
        return F.affine_grid(affine, list(shape), align_corners=False)

    def _spoiled(self, views: Tensor, generator: torch.Generator) -> Tensor:
        """Colours, sharpness and a part of the picture taken away, each by its own draws."""
        draws = torch.rand(5, len(views), generator=generator).to(views.device)
        no_colour = (draws[0] < self.grey).view(-1, 1, 1, 1)
        views = torch.where(no_colour, views.mean(dim=1, keepdim=True), views)
        if self.blur:
            widest = self.blur * views.shape[-1]
            views = filtered(views, gaussian(widest * (2 * draws[1] - 1).clamp(min=0), widest=widest))
        middle = views.mean(dim=(1, 2, 3), keepdim=True)
        return torch.where(_holes(draws[2:], self.hole, views.shape), middle, views)


WEAK = Augment(smallest=0.8, jitter=0.0)
"""The picture as good as it is: what a model's own answer is taken from."""

STRONG = Augment(smallest=0.35, jitter=0.4, grey=0.2, blur=0.015, hole=0.4)
"""A hard view, in which a person still knows what it is: what is taught that answer."""


def _recoloured(images: Tensor, factors: Tensor) -> Tensor:
    """Brightness, contrast and saturation times the three rows of `factors` (3 B)."""
    bright, contrast, colour = factors.view(3, -1, 1, 1, 1)
    grey = images.mean(dim=1, keepdim=True)
    images = grey + (images - grey) * colour
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    recoloured: Tensor = (images - middle) * contrast + middle * bright
    return recoloured.clamp(0, 1)


def _holes(draws: Tensor, largest: float, shape: torch.Size) -> Tensor:
    """(B 1 H W): true inside a square of each image, with sides up to `largest`; it may overhang."""
    half = (draws[0] * largest / 2).view(-1, 1, 1, 1)
    y = torch.linspace(0, 1, shape[2], device=draws.device).view(1, 1, -1, 1) - draws[1].view(-1, 1, 1, 1)
    x = torch.linspace(0, 1, shape[3], device=draws.device).view(1, 1, 1, -1) - draws[2].view(-1, 1, 1, 1)
    return (y.abs() < half) & (x.abs() < half)
