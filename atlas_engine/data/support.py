"""The labelled images that a model adapts to.

support = Support.from_folder("my_photos/")                                 # one sub-folder per class
support.pixels(224, resize="shortest", interpolation="bicubic")             # uint8 (N 3 224 224)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from atlas_engine.class_names import tidy_name
from atlas_engine.data.folders import ClassFolder, read_folder, read_labelled_files
from atlas_engine.data.image import Image
from atlas_engine.data.preprocess import stack_pixels
from atlas_engine.errors import ImageError, SupportError

__all__ = ["Support"]


@dataclass(frozen=True)
class Support:
    """Images, the class number of each, and the class names. Every class has at least one image."""

    images: tuple[Image, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise SupportError(
                f"got {len(self.images)} images and {len(self.labels)} labels. Give one label per image."
            )
        if len(self.classes) < 2:
            raise SupportError(f"got {len(self.classes)} class(es), but telling apart needs at least 2.")
        object.__setattr__(self, "classes", tuple(tidy_name(name) for name in self.classes))
        unknown = [label for label in self.labels if not 0 <= label < len(self.classes)]
        if unknown:
            raise SupportError(f"label {unknown[0]} is none of the {len(self.classes)} classes.")
        for name, count in zip(self.classes, self.counts, strict=True):
            if not count:
                raise SupportError(f"class '{name}' has no images. Add at least one, or take it away.")

    @classmethod
    def from_folder(cls, folder: Path | str | ClassFolder) -> Support:
        """The images of a folder with one sub-folder per class; ImageError if one cannot be read."""
        return cls.read(folder)[0]

    @classmethod
    def read(
        cls, folder: Path | str | ClassFolder, *, on_error: Literal["raise", "skip"] = "raise"
    ) -> tuple[Support, list[ImageError]]:
        """The images of a folder, and the errors of those that `on_error="skip"` leaves out."""
        listed = folder if isinstance(folder, ClassFolder) else read_folder(Path(folder))
        read, errors = read_labelled_files(listed.items, on_error=on_error)
        images, labels = tuple(image for _, image in read), tuple(item.label for item, _ in read)
        return cls(images, labels, listed.display_names), errors

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of images of each class."""
        counts = Counter(self.labels)
        return tuple(counts[label] for label in range(len(self.classes)))

    def warnings(self) -> tuple[str, ...]:
        """One sentence for each image that appears twice, in one class or in two."""
        first_index: dict[str, int] = {}
        sentences = []
        for index, image in enumerate(self.images):
            first = first_index.setdefault(image.digest, index)
            if first == index:
                continue
            pair = f"'{self.images[first].name}' and '{image.name}' are the same image"
            one, other = self.classes[self.labels[first]], self.classes[self.labels[index]]
            if one == other:
                sentences.append(f"{pair}: it counts twice for '{one}'. Take one away.")
            else:
                sentences.append(f"{pair}, once as '{one}' and once as '{other}'. Keep it where it belongs.")
        return tuple(sentences)

    def pixels(self, size: int, *, resize: str, interpolation: str) -> Tensor:
        """The images as uint8 (N 3 size size)."""
        return stack_pixels(self.images, size, resize=resize, interpolation=interpolation)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"Support({len(self)} images of {len(self.classes)} classes)"
