"""Pixels to the input of an image tower. Knows nothing of models: size, mean and deviation are handed in."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.data.image import Image
from atlas_engine.errors import ConfigError

__all__ = ["to_batch", "to_pixels"]

Triple = tuple[float, float, float]


def to_batch(
    pictures: Sequence[Image],
    *,
    size: int,
    mean: Triple,
    std: Triple,
    resize: str = "shortest",
    interpolation: str = "bicubic",
) -> Tensor:
    """Normalised images (B 3 size size) in float32: (pixels / 255 − mean) / std, on the CPU."""
    squares = [to_pixels(picture, size, resize=resize, interpolation=interpolation) for picture in pictures]
    offset, spread = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)
    return (torch.stack(squares).float() / 255 - offset) / spread


def to_pixels(picture: Image, size: int, *, resize: str, interpolation: str) -> Tensor:
    """The picture as uint8 (3 size size): "shortest" resizes the short side and crops, "squash" distorts."""
    pixels = torch.from_numpy(picture.pixels.copy() if not picture.pixels.flags.writeable else picture.pixels)
    pixels = pixels.permute(2, 0, 1)
    if resize not in ("shortest", "squash"):
        raise ConfigError(f"resize is '{resize}' but must be 'shortest' or 'squash'.")
    height, width = _target(picture.height, picture.width, size) if resize == "shortest" else (size, size)
    if (height, width) != tuple(pixels.shape[1:]):
        pixels = F.interpolate(pixels[None], (height, width), mode=interpolation, antialias=True)[0]
    top, left = round((height - size) / 2), round((width - size) / 2)
    return pixels[:, top : top + size, left : left + size]


def _target(height: int, width: int, size: int) -> tuple[int, int]:
    """Height and width whose shorter is `size`, in the picture's own proportion.

    >>> _target(200, 100, 128)
    (256, 128)
    """
    scale = size / min(height, width)
    return max(size, math.floor(height * scale)), max(size, math.floor(width * scale))
