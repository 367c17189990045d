"""An image in memory, the limits that a stranger's image has to keep, and how its reading is stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from atlas_engine.config import Settings, setting
from atlas_engine.errors import ImageError, StoppedError

__all__ = ["DEFAULT_LIMITS", "Image", "ImageLimits", "Pixels", "StopQuestion", "raise_if_stopped"]

Pixels = NDArray[np.uint8]  # (H W 3)
StopQuestion = Callable[[], bool]
"""Asked between images and, from another thread, several times a second while one is read; True stops it.

A flag (`threading.Event().is_set`) or a deadline (`lambda: time.monotonic() > end`). It must not raise.
"""


@dataclass(frozen=True, repr=False)
class Image:
    """Read-only RGB pixels (H W 3) with a name and a fingerprint.

    Two images are equal if their pixels are, whatever their names: `digest` is the SHA-256 of shape and
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
        # As bytes, because an unpickled array would be writeable.
        return _rebuild, (self.name, self.pixels.shape, self.pixels.tobytes())


@dataclass(frozen=True, kw_only=True)
class ImageLimits(Settings):
    """What an image from a stranger may cost. Checked when built."""

    max_bytes: int = setting(20 << 20, help="largest file, in bytes", low=1)
    max_pixels: int = setting(40_000_000, help="most pixels, counted before decoding", low=1)
    min_side: int = setting(8, help="shortest side, in pixels", low=1)
    max_aspect: float = setting(30.0, help="long side over short side, at most", low=1)
    keep_side: int = setting(448, help="larger images are shrunk to this short side, in pixels", low=8)
    keep_pixels: int = setting(1_000_000, help="larger images are shrunk to this many pixels", low=64)
    seconds: float = setting(20.0, help="time allowed for one image", low=0.05, high=600)
    cpu_seconds: float = setting(6.0, help="computing time allowed for one image", low=0.05, high=600)


DEFAULT_LIMITS = ImageLimits()


def raise_if_stopped(stop: StopQuestion | None, what: str) -> None:
    """Raise a StoppedError that begins with `what` if the caller asks to stop."""
    if stop is not None and stop():
        raise StoppedError(f"{what}: reading was stopped.")


def _digest(pixels: Pixels) -> str:
    digest = hashlib.sha256(repr(tuple(pixels.shape)).encode())
    digest.update(pixels.data)
    return digest.hexdigest()


def _rebuild(name: str, shape: tuple[int, int, int], data: bytes) -> Image:
    return Image(name, np.frombuffer(data, np.uint8).reshape(shape))
