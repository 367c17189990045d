"""The ready examples of each tab: images that ship, and what to do with them.

A few-shot example is a folder: `teach/CLASS/*.jpg` to learn from, `try/CLASS/*.jpg` to try it on, and the
result that `app.prepared_examples` made of them. assets/examples/README.md has every image's origin and
licence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app import text
from app.handlers.few_shot import FewShotRequest
from app.handlers.uploads import ClassRow, UploadedImage

__all__ = [
    "ASK_EXAMPLES",
    "FEW_SHOT_EXAMPLES",
    "FOLDER",
    "FORGET_EXAMPLE",
    "UNLABELLED_EXAMPLES",
    "AskExample",
    "FewShotExample",
    "ForgetExample",
    "UnlabelledExample",
]

FOLDER = Path(__file__).resolve().parent.parent / "assets" / "examples"
THUMBNAILS = 4  # images on a button


@dataclass(frozen=True)
class AskExample:
    """Some images and the words to ask about them."""

    title: str
    files: tuple[str, ...]
    classes: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The images' paths."""
        return tuple(str(FOLDER / file) for file in self.files)

    @property
    def class_text(self) -> str:
        """The class names as a visitor would type them."""
        return ", ".join(self.classes)


@dataclass(frozen=True)
class FewShotExample:
    """Classes to learn: a title, and the name of the folder with their images."""

    title: str
    folder: str

    @property
    def path(self) -> Path:
        """Where its images are, and the result that was computed from them."""
        return FOLDER / self.folder

    @property
    def request(self) -> FewShotRequest:
        """The classes in alphabetical order, and the images to try, each with its class."""
        rows = [ClassRow(_class_name(one), _images_in(one)) for one in _folders_in(self.path / "teach")]
        samples = [
            UploadedImage(path, _class_name(one))
            for one in _folders_in(self.path / "try")
            for path in _images_in(one)
        ]
        return FewShotRequest(tuple(rows), tuple(samples))

    @property
    def images(self) -> tuple[UploadedImage, ...]:
        """All its images, each with its class."""
        request = self.request
        learned = tuple(UploadedImage(path, row.name) for row in request.rows for path in row.paths)
        return (*learned, *request.samples)

    @property
    def thumbnails(self) -> tuple[str, ...]:
        """The first image of its first classes."""
        return tuple(row.paths[0] for row in self.request.rows[:THUMBNAILS])


@dataclass(frozen=True)
class UnlabelledExample:
    """Images without labels, and names for them; the class of each is there to count afterwards."""

    title: str
    images: tuple[UploadedImage, ...]
    classes: tuple[str, ...]

    @classmethod
    def of_one(cls, example: FewShotExample) -> UnlabelledExample:
        """The images of a few-shot example under its own classes."""
        return cls(example.title, example.images, example.request.classes)

    @classmethod
    def of_several(cls, title: str, examples: Mapping[str, FewShotExample]) -> UnlabelledExample:
        """The images of several few-shot examples, all those of one under one name."""
        images = tuple(
            UploadedImage(one.path, name) for name, example in examples.items() for one in example.images
        )
        return cls(title, images, tuple(examples))

    @property
    def thumbnails(self) -> tuple[str, ...]:
        """A few of the images, from all over."""
        step = len(self.images) // THUMBNAILS
        return tuple(image.path for image in self.images[step // 2 :: step][:THUMBNAILS])


@dataclass(frozen=True)
class ForgetExample:
    """A few-shot example whose fine classes are forgotten, while it is still told from another example."""

    fine: FewShotExample
    other: FewShotExample
    names: tuple[str, str]  # what all images of each are called
    images_each: int = 10  # to keep

    @property
    def target(self) -> tuple[ClassRow, ...]:
        """What to forget: the fine classes."""
        request = self.fine.request
        return tuple(
            ClassRow(row.name, (*row.paths, *(one.path for one in request.samples if one.label == row.name)))
            for row in request.rows
        )

    @property
    def control(self) -> tuple[ClassRow, ...]:
        """What to keep: one example against the other, a few images of every class of each."""
        return tuple(
            ClassRow(name, _round_robin([row.paths for row in one.request.rows], self.images_each))
            for name, one in zip(self.names, (self.fine, self.other), strict=True)
        )

    @property
    def thumbnails(self) -> tuple[str, ...]:
        """The first image of the first classes to forget."""
        return tuple(row.paths[0] for row in self.target[:THUMBNAILS])


def _round_robin(paths: list[tuple[str, ...]], count: int) -> tuple[str, ...]:
    """The first `count` of the paths, taken from each group in turn."""
    turns = [path for turn in zip(*paths, strict=False) for path in turn]
    return tuple(turns[:count])


def _folders_in(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir())


def _images_in(folder: Path) -> tuple[str, ...]:
    return tuple(str(path) for path in sorted(folder.glob("*.jpg")))


def _class_name(folder: Path) -> str:
    return folder.name.replace("_", " ")


ASK_EXAMPLES = (
    AskExample(
        "Things",
        ("cat.jpg", "coffee.jpg", "rocket.jpg"),
        ("cat", "dog", "coffee", "soup", "rocket", "aeroplane"),
    ),
    AskExample(
        "Finer words",
        ("cat.jpg", "coffee.jpg"),
        ("tabby cat", "Siamese cat", "lynx", "espresso", "tea", "tomato soup"),
    ),
    AskExample(
        "No colour",
        ("horse.jpg", "photographer.jpg"),
        ("horse", "cow", "photographer", "cook", "bicycle", "tree"),
    ),
)
APPLES, MELONS = FewShotExample("Apples", "apples"), FewShotExample("Melons", "melons")
FEW_SHOT_EXAMPLES = (MELONS, APPLES)  # the page opens on the first
UNLABELLED_EXAMPLES = (
    UnlabelledExample.of_several(
        text.unlabelled.EXAMPLE_TITLE,
        dict(zip(text.unlabelled.EXAMPLE_NAMES, (APPLES, MELONS), strict=True)),
    ),
    *(UnlabelledExample.of_one(example) for example in FEW_SHOT_EXAMPLES),
)
FORGET_EXAMPLE = ForgetExample(APPLES, MELONS, names=text.forget.EXAMPLE_KEEPS)
