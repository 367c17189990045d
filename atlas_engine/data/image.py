"""A picture as the engine holds it, and the limits it had to pass. Knows nothing of files or decoders."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from atlas_engine.config import Settings, setting
from atlas_engine.errors import ImageError

__all__ = ["DEFAULT_LIMITS", "Image", "ImageLimits", "Pixels"]

Pixels = NDArray[np.uint8]  # (H W 3)


@dataclass(frozen=True, repr=False)
class Image:
    """Red, green and blue pixels that nobody can write to, with a name and a fingerprint.

    Two pictures are equal when their pixels are, whatever their names: `digest` is the SHA-256 of shape and
    pixels, and serves as a cache key.
    """

    name: str = field(compare=False)
    pixels: Pixels = field(compare=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        pixels = self.pixels
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
            raise ImageError(
                f"{self.name}: an Image holds uint8 pixels of shape (H, W, 3), but got {pixels.dtype} "
                f"of shape {pixels.shape}. Use read_image, which converts."
            )
        if pixels.flags.writeable or not pixels.flags.c_contiguous:
            pixels = pixels.copy(order="C")
            pixels.flags.writeable = False
        object.__setattr__(self, "pixels", pixels)
        object.__setattr__(self, "digest", _digest(pixels))

    @property
    def width(self) -> int:
        """Pixels from left to right."""
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        """Pixels from top to bottom."""
        return int(self.pixels.shape[0])

    def __repr__(self) -> str:
        return f"Image({self.name!r}, {self.width}×{self.height} px, {self.digest[:8]})"

    def __copy__(self) -> Image:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Image:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        # As bytes, since an array forgets in a pickle that it may not be written to.
        return _rebuild, (self.name, self.pixels.shape, self.pixels.tobytes())


@dataclass(frozen=True, kw_only=True)
class ImageLimits(Settings):
    """What a picture from a stranger may cost. Checked when built."""

    max_bytes: int = setting(20 << 20, help="largest file, in bytes", low=1)
    max_pixels: int = setting(40_000_000, help="most pixels, counted before decoding", low=1)
    min_side: int = setting(8, help="shortest side, in pixels", low=1)
    max_aspect: float = setting(30.0, help="long side over short side, at most", low=1)
    keep_side: int = setting(448, help="larger pictures are shrunk to this short side, in pixels", low=8)
    seconds: float = setting(20.0, help="time allowed for one picture", low=0.05, high=600)


DEFAULT_LIMITS = ImageLimits()


def _digest(pixels: Pixels) -> str:
    digest = hashlib.sha256(repr(tuple(pixels.shape)).encode())
    digest.update(pixels.data)
    return digest.hexdigest()


def _rebuild(name: str, shape: tuple[int, int, int], data: bytes) -> Image:
    return Image(name, np.frombuffer(data, np.uint8).reshape(shape))
