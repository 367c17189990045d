"""Images to the input of an image tower: uint8 pixels of the model's size, then normalised floats.

    pixels = stack_pixels(images, 224, resize="shortest", interpolation="bicubic")     # uint8 (N 3 224 224)
    batch = to_batch(images, size=224, mean=mean, std=std)                             # float32 (N 3 224 224)

Size, mean and standard deviation are those of the model (`clip.backbone.Preprocessing`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.data.image import Image
from atlas_engine.errors import ConfigError

__all__ = ["stack_pixels", "to_batch", "to_pixels"]

Triple = tuple[float, float, float]


def to_batch(
    images: Iterable[Image],
    *,
    size: int,
    mean: Triple,
    std: Triple,
    resize: str = "shortest",
    interpolation: str = "bicubic",
) -> Tensor:
    """Normalised images (N 3 size size) in float32 on the CPU: (pixels / 255 − mean) / std."""
    pixels = stack_pixels(images, size, resize=resize, interpolation=interpolation)
    offset, scale = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)
    return (pixels.float() / 255 - offset) / scale


def stack_pixels(images: Iterable[Image], size: int, *, resize: str, interpolation: str) -> Tensor:
    """The images as uint8 (N 3 size size); (0 3 size size) without images.

    The images may be read while they are stacked (a generator), so that one at a time is in memory.
    """
    rows = [to_pixels(image, size, resize=resize, interpolation=interpolation) for image in images]
    return torch.stack(rows) if rows else torch.empty(0, 3, size, size, dtype=torch.uint8)


def to_pixels(image: Image, size: int, *, resize: str, interpolation: str) -> Tensor:
    """One image as uint8 (3 size size).

    `resize` "shortest" scales the shorter side to `size` and crops the middle; "squash" scales both sides.
    """
    if resize not in ("shortest", "squash"):
        raise ConfigError(f"resize is '{resize}' but must be 'shortest' or 'squash'.")
    pixels = torch.from_numpy(image.pixels.copy()).permute(2, 0, 1)
    height, width = (size, size)
    if resize == "shortest":
        height, width = _scale_shortest(image.height, image.width, size)
    if (height, width) != tuple(pixels.shape[1:]):
        pixels = F.interpolate(pixels[None], (height, width), mode=interpolation, antialias=True)[0]
    top, left = round((height - size) / 2), round((width - size) / 2)
    return pixels[:, top : top + size, left : left + size]


def _scale_shortest(height: int, width: int, size: int) -> tuple[int, int]:
    """Height and width of the same proportion whose shorter one is `size`.

    >>> _scale_shortest(200, 100, 128)
    (256, 128)
    """
    scale = size / min(height, width)
    return max(size, math.floor(height * scale)), max(size, math.floor(width * scale))
