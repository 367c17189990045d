"""The labelled images that a model adapts to.

support = Support.from_folder("my_photos/")                                 # one sub-folder per class
support.pixels(224, resize="shortest", interpolation="bicubic")             # uint8 (N 3 224 224)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from atlas_engine.class_names import NONE_OF_THESE, tidy_name
from atlas_engine.data.folders import ClassFolder, read_labelled_files
from atlas_engine.data.image import Image, StopQuestion
from atlas_engine.data.image_files import MOST_IN_MEMORY, ImageFiles, image_names, join_images
from atlas_engine.data.layouts import read_dataset
from atlas_engine.data.preprocess import stack_pixels
from atlas_engine.errors import ImageError, SupportError

__all__ = ["Support"]


@dataclass(frozen=True)
class Support:
    """Images, the class number of each, and the class names. Every class has at least one image.

    The images of a large folder are an `ImageFiles`, which reads each when it is asked for and keeps none.
    """

    images: Sequence[Image]
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
    def from_folder(
        cls, folder: Path | str | ClassFolder, *, split: str = "train", stop: StopQuestion | None = None
    ) -> Support:
        """The images of a folder with one sub-folder per class; ImageError if one cannot be read.

        Any other layout of `layouts.read_dataset` is taken too: split folders, a table, an export of Label
        Studio or FiftyOne, a data set on the hub.
        """
        return cls.read(folder, split=split, stop=stop)[0]

    @classmethod
    def read(
        cls,
        folder: Path | str | ClassFolder,
        *,
        split: str = "train",
        on_error: Literal["raise", "skip"] = "raise",
        most_in_memory: int = MOST_IN_MEMORY,
        stop: StopQuestion | None = None,
    ) -> tuple[Support, list[ImageError]]:
        """The images of a folder, and the errors of those that `on_error="skip"` leaves out.

        If the folder has more than `most_in_memory` images, they are streamed: one that cannot be read raises
        its error when it is asked for, and to skip such images, all of them are read once more. A
        StoppedError ends the reading once `stop` is true.
        """
        listed = folder if isinstance(folder, ClassFolder) else read_dataset(folder, split=split)
        if len(listed.items) > most_in_memory:
            return cls._stream(listed, on_error=on_error)
        read, errors = read_labelled_files(listed.items, on_error=on_error, stop=stop)
        images, labels = tuple(image for _, image in read), tuple(item.label for item, _ in read)
        return cls(images, labels, listed.display_names), errors

    @classmethod
    def _stream(cls, folder: ClassFolder, *, on_error: str) -> tuple[Support, list[ImageError]]:
        """The same with images that are not kept."""
        items, errors = list(folder.items), list[ImageError]()
        if on_error == "skip":
            readable = []
            for item in items:
                found, wrong = read_labelled_files([item], on_error="skip")
                readable += [item] if found else []
                errors += wrong
            items = readable
        images = ImageFiles(tuple(item.source for item in items), tuple(item.name for item in items))
        return cls(images, tuple(item.label for item in items), folder.display_names), errors

    def with_negatives(self, images: Sequence[Image]) -> Support:
        """The same support with one more class, `none of these`, of images that show none of its classes."""
        if NONE_OF_THESE in self.classes:
            raise SupportError(f"there is a class '{NONE_OF_THESE}' already. Add the images to it.")
        labels = (*self.labels, *(len(self.classes) for _ in images))
        return Support(join_images(self.images, images), labels, (*self.classes, NONE_OF_THESE))

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of images of each class."""
        counts = Counter(self.labels)
        return tuple(counts[label] for label in range(len(self.classes)))

    def warnings(self) -> tuple[str, ...]:
        """One sentence for each image that appears twice, in one class or in two.

        Images that are streamed are compared by the bytes of their files.
        """
        first_index: dict[str, int] = {}
        names, sentences = image_names(self.images), []
        for index in range(len(self)):
            first = first_index.setdefault(self._digest(index), index)
            if first == index:
                continue
            pair = f"'{names[first]}' and '{names[index]}' are the same image"
            one, other = self.classes[self.labels[first]], self.classes[self.labels[index]]
            if one == other:
                sentences.append(f"{pair}: it counts twice for '{one}'. Take one away.")
            else:
                sentences.append(f"{pair}, once as '{one}' and once as '{other}'. Keep it where it belongs.")
        return tuple(sentences)

    def _digest(self, index: int) -> str:
        images = self.images
        return images.file_digest(index) if isinstance(images, ImageFiles) else images[index].digest

    def pixels(self, size: int, *, resize: str, interpolation: str) -> Tensor:
        """The images as uint8 (N 3 size size)."""
        return stack_pixels(self.images, size, resize=resize, interpolation=interpolation)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"Support({len(self)} images of {len(self.classes)} classes)"
