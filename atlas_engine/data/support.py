"""Labelled pictures to adapt to, few or many. Knows nothing of models."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from atlas_engine.class_names import tidy_name
from atlas_engine.data.folders import ClassFolder, read_folder, read_labelled_files
from atlas_engine.data.image import Image
from atlas_engine.data.preprocess import to_pixels
from atlas_engine.errors import ImageError, SupportError

__all__ = ["Support"]


@dataclass(frozen=True)
class Support:
    """Pictures, the class number of each, and the class names. Every class has at least one picture."""

    pictures: tuple[Image, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.pictures) != len(self.labels):
            raise SupportError(
                f"got {len(self.pictures)} pictures and {len(self.labels)} labels. Give one label a picture."
            )
        if len(self.classes) < 2:
            raise SupportError(f"got {len(self.classes)} class(es), but telling apart needs at least 2.")
        object.__setattr__(self, "classes", tuple(tidy_name(name) for name in self.classes))
        strange = [label for label in self.labels if not 0 <= label < len(self.classes)]
        if strange:
            raise SupportError(f"label {strange[0]} is none of the {len(self.classes)} classes.")
        counts = Counter(self.labels)
        for label, name in enumerate(self.classes):
            if not counts[label]:
                raise SupportError(f"class '{name}' has no pictures. Add at least one, or take it away.")

    @classmethod
    def from_folder(cls, folder: Path | str | ClassFolder) -> Support:
        """The pictures of a folder with one sub-folder a class; one that cannot be read is an error."""
        return cls.read(folder)[0]

    @classmethod
    def read(
        cls, folder: Path | str | ClassFolder, *, on_error: Literal["raise", "skip"] = "raise"
    ) -> tuple[Support, list[ImageError]]:
        """The pictures of a folder, and the errors of those that were left out with `on_error="skip"`."""
        listed = folder if isinstance(folder, ClassFolder) else read_folder(Path(folder))
        read, errors = read_labelled_files(listed.items, on_error=on_error)
        pictures = tuple(picture for _, picture in read)
        return cls(pictures, tuple(item.label for item, _ in read), listed.pretty), errors

    @property
    def counts(self) -> tuple[int, ...]:
        """How many pictures each class has."""
        counts = Counter(self.labels)
        return tuple(counts[label] for label in range(len(self.classes)))

    def warnings(self) -> tuple[str, ...]:
        """What is odd about the pictures, a sentence each: one picture under two classes, or twice in one."""
        first: dict[str, int] = {}
        found = []
        for index, picture in enumerate(self.pictures):
            other = first.setdefault(picture.digest, index)
            if other == index:
                continue
            pair = f"'{self.pictures[other].name}' and '{picture.name}' are the same picture"
            one, two = self.classes[self.labels[other]], self.classes[self.labels[index]]
            if one == two:
                found.append(f"{pair}: it counts twice for '{one}'. Take one away.")
            else:
                found.append(f"{pair}, once as '{one}' and once as '{two}'. Keep it where it belongs.")
        return tuple(found)

    def squares(self, size: int, *, resize: str, interpolation: str) -> Tensor:
        """The pictures as uint8 (N 3 size size)."""
        return torch.stack(
            [to_pixels(one, size, resize=resize, interpolation=interpolation) for one in self.pictures]
        )

    def __len__(self) -> int:
        return len(self.pictures)

    def __repr__(self) -> str:
        return f"Support({len(self)} pictures of {len(self.classes)} classes)"
