"""Images to the input of an image tower: uint8 pixels of the model's size, then normalised floats.

    pixels = stack_pixels(images, 224, resize="shortest", interpolation="bicubic")     # uint8 (N 3 224 224)
    batch = to_batch(images, size=224, mean=mean, std=std)                             # float32 (N 3 224 224)

Size, mean and standard deviation are those of the model (`clip.backbone.Preprocessing`).
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Sized

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.data.image import Image
from atlas_engine.errors import ConfigError, SupportError
from atlas_engine.files import human_nbytes

__all__ = ["IN_MEMORY_NBYTES", "allocate_pixels", "stack_pixels", "to_batch", "to_pixels"]

IN_MEMORY_NBYTES = 1 << 29  # 3,500 images at 224 px

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

    The images may be read while they are stacked (an `ImageFiles`), so that one at a time is in memory. More
    than `IN_MEMORY_NBYTES` of pixels lie in a temporary file (`allocate_pixels`).
    """
    listed = images if isinstance(images, Sized) else list(images)
    pixels = allocate_pixels(len(listed), size)
    for row, image in enumerate(listed):
        pixels[row] = to_pixels(image, size, resize=resize, interpolation=interpolation)
    return pixels


def allocate_pixels(count: int, size: int) -> Tensor:
    """A uint8 tensor (count 3 size size) to be filled: in memory or, if it is large, mapped from a file.

    The file has no name, and its space is free again when the tensor is. It is made where `TMPDIR` says,
    which should be a disk: a `/tmp` that is kept in memory saves none. The process holds none of the pixels
    itself, but the system keeps as much of the file in memory as nobody else needs.
    """
    shape = (count, 3, size, size)
    if math.prod(shape) <= IN_MEMORY_NBYTES:
        return torch.empty(shape, dtype=torch.uint8)
    return _map_file(shape)


def _map_file(shape: tuple[int, int, int, int]) -> Tensor:
    nbytes, folder = math.prod(shape), tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile(prefix="atlas-") as file:
            # all of it is claimed now, because a disk that fills up later would end the process
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, nbytes)
            elif shutil.disk_usage(folder).free < nbytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="r+", shape=shape))
    except OSError as error:
        raise SupportError(
            f"the pixels of {shape[0]} images need {human_nbytes(nbytes)} in '{folder}', which has no such "
            f"room ({error.strerror}). Let TMPDIR name a folder on a larger disk, or give fewer images."
        ) from error


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
