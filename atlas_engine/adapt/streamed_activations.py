"""Activations of images that are computed when they are asked for, so that N images are never all in memory.

    clean = StreamedActivations(pixels, part.activations, device=device)
    for some in split_activations(clean, 64): ...            # (64 …) at a time, in order
    take_rows(clean, rows)                                   # (B …) of the images in these rows

Whoever takes `Activations` works with a tensor (N …) as well, which is the quicker one where a frozen prefix
has been run already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from jaxtyping import UInt8
from torch import Tensor

from atlas_engine import runtime

__all__ = ["Activations", "StreamedActivations", "split_activations", "take_rows"]


class StreamedActivations:
    """Activations (N …) of images, or of a random view of each, which is the same in every pass."""

    def __init__(
        self,
        pixels: UInt8[Tensor, "N 3 S S"],
        to_activations: Callable[[Tensor], Tensor],
        *,
        device: torch.device,
        view: Callable[[Tensor, torch.Generator], Tensor] | None = None,
        seed: int = 0,
        before_each: Callable[[], None] = lambda: None,
    ) -> None:
        """`to_activations` takes images (B 3 S S) in 0 … 1, and gives activations on `device`.

        `before_each` is called before each part of a `split`.
        """
        self._pixels, self._to_activations, self._before_each = pixels, to_activations, before_each
        self._view, self._seed, self.device = view, seed, device

    def __len__(self) -> int:
        return len(self._pixels)

    def split(self, size: int) -> Iterator[Tensor]:
        """Activations (size …) of the next images, until all N have come; one part is in memory at a time."""
        random = runtime.generator(self._seed)
        for pixels in torch.split(self._pixels, size):
            self._before_each()
            images = _plain(pixels) if self._view is None else self._view(pixels, random)
            yield self._to_activations(images)

    def take(self, rows: Tensor) -> Tensor:
        """Activations (B …) of these rows, numbers (B) or a mask (N); not for views, whose order matters."""
        assert self._view is None
        return self._to_activations(_plain(self._pixels[rows.cpu()]))


Activations: TypeAlias = "Tensor | StreamedActivations"
"""Activations (N …) of N images, in memory or streamed."""


def split_activations(activations: Activations, size: int) -> Iterator[Tensor]:
    """Activations (size …) of the next images, until all N have come."""
    if isinstance(activations, StreamedActivations):
        return activations.split(size)
    return iter(torch.split(activations, size))


def take_rows(activations: Activations, rows: Tensor) -> Tensor:
    """Activations (B …) of the images in these rows: numbers (B), or a mask (N)."""
    return activations.take(rows) if isinstance(activations, StreamedActivations) else activations[rows]


def _plain(pixels: Tensor) -> Tensor:
    return pixels.float() / 255
