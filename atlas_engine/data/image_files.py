"""Images that are read when they are asked for, and not kept: any number of them needs the memory of one.

images = keep_or_stream(paths)        # decoded now, or an `ImageFiles` where there are many
for image in images: ...              # each is read here, in order, and again in the next loop
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import overload

from typing_extensions import override

from atlas_engine.data.decode import ImageSource, read_image, source_name
from atlas_engine.data.image import Image, StopQuestion

__all__ = ["MOST_IN_MEMORY", "ImageFiles", "image_names", "join_images", "keep_or_stream"]

MOST_IN_MEMORY = 1_000
"""Decoded images that are kept, about half a gigabyte of them; more are streamed."""


@dataclass(frozen=True, repr=False)
class ImageFiles(Sequence[Image]):
    """N images by their sources. An image that cannot be read raises its ImageError when it is asked for."""

    sources: tuple[ImageSource, ...]
    names: tuple[str, ...] = field(compare=False)

    @override
    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, index: int) -> Image: ...
    @overload
    def __getitem__(self, index: slice) -> list[Image]: ...
    @override
    def __getitem__(self, index: int | slice) -> Image | list[Image]:
        """One image, or a list of several, read now."""
        if isinstance(index, slice):
            return [self[row] for row in range(len(self))[index]]
        return read_image(self.sources[index], name=self.names[index])

    @override
    def __iter__(self) -> Iterator[Image]:
        return (self[row] for row in range(len(self)))

    def file_digest(self, index: int) -> str:
        """The SHA-256 of a file's bytes, without decoding it; of the pixels of an image in memory."""
        source = self.sources[index]
        if isinstance(source, (str, os.PathLike)):
            return hashlib.sha256(Path(source).read_bytes()).hexdigest()
        if isinstance(source, (bytes, bytearray, memoryview)):
            return hashlib.sha256(source).hexdigest()
        return self[index].digest

    def __repr__(self) -> str:
        return f"ImageFiles({len(self)} images, read when they are asked for)"


def keep_or_stream(
    images: Sequence[ImageSource], *, most: int = MOST_IN_MEMORY, stop: StopQuestion | None = None
) -> Sequence[Image]:
    """The images, decoded now or, where they are more than `most`, when they are asked for.

    A StoppedError ends the decoding once `stop` is true.
    """
    if isinstance(images, ImageFiles):
        return images
    if len(images) <= most:
        return [read_image(image, stop=stop) for image in images]
    return ImageFiles(tuple(images), tuple(map(source_name, images)))


def join_images(images: Sequence[Image], more: Sequence[Image]) -> Sequence[Image]:
    """All of them, one after another; streamed where one of the two is."""
    if not isinstance(images, ImageFiles) and not isinstance(more, ImageFiles):
        return (*images, *more)
    sources = [part.sources if isinstance(part, ImageFiles) else tuple(part) for part in (images, more)]
    return ImageFiles((*sources[0], *sources[1]), (*image_names(images), *image_names(more)))


def image_names(images: Sequence[Image]) -> tuple[str, ...]:
    """The name of each image; no file is read."""
    return images.names if isinstance(images, ImageFiles) else tuple(image.name for image in images)
