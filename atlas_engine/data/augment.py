"""Random views of pixels in memory, a whole batch at once.

views = Augment(flip=False)(pixels, generator)        # uint8 (B 3 S S) -> floats (B 3 S S) in 0 … 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.data.filters import filtered, gaussian

__all__ = ["STRONG", "WEAK", "Augment", "ResizedCrop"]

STRETCH = 0.4  # range of the logarithm of width / height


@dataclass(frozen=True)
class Augment:
    """Random crops, mirroring and colour jitter, drawn for each image; then grey, blur and a hole, if set."""

    smallest: float = 0.5  # side of the smallest crop, as a share of the image's
    flip: bool = True  # off where left and right differ: digits, signs, letters
    jitter: float = 0.25  # largest change of brightness, contrast and saturation
    grey: float = 0.0  # share of the images that become grey
    blur: float = 0.0  # σ of the widest blur, as a share of the side; half of the images stay sharp
    hole: float = 0.0  # side of the largest square cut out, as a share of the image's

    def __call__(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """uint8 (B 3 S S) -> a view of each, floats in 0 … 1. All random draws are the (CPU) generator's."""
        draws = torch.rand(8, len(pixels), generator=generator).to(pixels.device)
        crops = F.grid_sample(
            pixels.float() / 255,
            self._grid(draws[:5], pixels.shape),
            padding_mode="reflection",
            align_corners=False,
        )
        views = _scale_colours(crops, 1 + (2 * draws[5:] - 1) * self.jitter)
        return self._degrade(views, generator) if self.grey or self.blur or self.hole else views

    def _grid(self, draws: Tensor, shape: torch.Size) -> Tensor:
        """(5 B) -> (B S S 2): the sampling grid of each image's crop, by size, shape, mirror and place."""
        side = self.smallest + (1 - self.smallest) * draws[0].sqrt()  # large crops are likelier
        stretch = torch.exp((draws[1] - 0.5) * STRETCH * (1 - self.smallest) * 2)
        mirror = 1 - 2 * (draws[2] < 0.5).float() * self.flip
        wide, high = (side * stretch).clamp(max=1), (side / stretch).clamp(max=1)
        affine = torch.zeros(len(side), 2, 3, device=draws.device)
        affine[:, 0, 0], affine[:, 1, 1] = wide * mirror, high
        affine[:, 0, 2], affine[:, 1, 2] = (2 * draws[3] - 1) * (1 - wide), (2 * draws[4] - 1) * (1 - high)
        return F.affine_grid(affine, list(shape), align_corners=False)

    def _degrade(self, views: Tensor, generator: torch.Generator) -> Tensor:
        """(B 3 S S) -> (B 3 S S): without colours, without sharpness, or with a hole."""
        draws = torch.rand(5, len(views), generator=generator).to(views.device)
        # grey
        is_grey = (draws[0] < self.grey).view(-1, 1, 1, 1)
        views = torch.where(is_grey, views.mean(dim=1, keepdim=True), views)
        # blur
        if self.blur:
            widest = self.blur * views.shape[-1]
            views = filtered(views, gaussian(widest * (2 * draws[1] - 1).clamp(min=0), widest=widest))
        # hole, in the mean colour
        mean = views.mean(dim=(1, 2, 3), keepdim=True)
        return torch.where(_holes(draws[2:], self.hole, views.shape), mean, views)


@dataclass(frozen=True)
class ResizedCrop:
    """A random crop of at least `area` of each image, resized to its size by bicubic interpolation, mirrored
    at random: the paper's augmentation (aTLAS, section 5; torchvision's RandomResizedCrop and flip).

    The paper crops the whole file. Here it is the centre square at the model's size, the only pixels that the
    model is asked about later: what lies beside it in a wide or tall file is never seen, crops of a square
    file are the same but for resizing twice, and any number of images has pixels of one shape (see
    `preprocess.allocate_pixels`)."""

    area: float = 0.5  # of the smallest crop, as a share of the image's
    aspect: float = 4 / 3  # of the most stretched crop, width to height or the other way round

    def __call__(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """uint8 (B 3 S S) -> a view of each, floats in 0 … 1. All random draws are the (CPU) generator's."""
        draws = torch.rand(5, len(pixels), generator=generator).to(pixels.device)
        area = self.area + (1 - self.area) * draws[0]
        stretch = torch.exp((2 * draws[1] - 1) * math.log(self.aspect) / 2)  # √(width / height)
        wide, high = (area.sqrt() * stretch).clamp(max=1), (area.sqrt() / stretch).clamp(max=1)
        affine = torch.zeros(len(area), 2, 3, device=pixels.device)
        affine[:, 0, 0], affine[:, 1, 1] = wide * (1 - 2 * (draws[2] < 0.5).float()), high
        affine[:, 0, 2], affine[:, 1, 2] = (2 * draws[3] - 1) * (1 - wide), (2 * draws[4] - 1) * (1 - high)
        grid = F.affine_grid(affine, list(pixels.shape), align_corners=False)
        views = F.grid_sample(
            pixels.float() / 255, grid, mode="bicubic", padding_mode="reflection", align_corners=False
        )
        return views.clamp(0, 1)


WEAK = Augment(smallest=0.8, jitter=0.0)
"""Nearly the image itself: the view that a pseudo-label is computed on."""

STRONG = Augment(smallest=0.35, jitter=0.4, grey=0.2, blur=0.015, hole=0.4)
"""A hard view that a person would still recognise: the view that learns the pseudo-label."""


def _scale_colours(images: Tensor, factors: Tensor) -> Tensor:
    """(B 3 S S), with brightness, contrast and saturation times the three rows of `factors` (3 B)."""
    bright, contrast, colour = factors.view(3, -1, 1, 1, 1)
    grey = images.mean(dim=1, keepdim=True)
    images = grey + (images - grey) * colour
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    scaled: Tensor = (images - mean) * contrast + mean * bright
    return scaled.clamp(0, 1)


def _holes(draws: Tensor, largest: float, shape: torch.Size) -> Tensor:
    """(B 1 H W): true in one square per image, with sides up to `largest`; it may reach over the border."""
    half = (draws[0] * largest / 2).view(-1, 1, 1, 1)
    y = torch.linspace(0, 1, shape[2], device=draws.device).view(1, 1, -1, 1) - draws[1].view(-1, 1, 1, 1)
    x = torch.linspace(0, 1, shape[3], device=draws.device).view(1, 1, 1, -1) - draws[2].view(-1, 1, 1, 1)
    return (y.abs() < half) & (x.abs() < half)
