"""The ready examples: pictures to ask about, and lessons to teach. Knows nothing of Gradio or models.

A lesson is a folder: `teach/CLASS/*.jpg` to learn from, `try/CLASS/*.jpg` to try it on, and
what `app.prepared_examples` made of them. assets/examples/README.md has every picture's origin and licence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app import forget_text, roll_text
from app.handlers.lesson import ClassRow, FewShotRequest, SampleFile

__all__ = [
    "EXAMPLES",
    "FOLDER",
    "FORGET",
    "LESSONS",
    "ROLLS",
    "Example",
    "ForgetExample",
    "LessonExample",
    "RollExample",
]

SHOWN = 4  # photos of a roll on its button
FOLDER = Path(__file__).resolve().parent.parent / "assets" / "examples"


@dataclass(frozen=True)
class Example:
    """Some pictures and the words to ask about them."""

    title: str
    files: tuple[str, ...]
    classes: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The pictures' paths."""
        return tuple(str(FOLDER / file) for file in self.files)

    @property
    def class_text(self) -> str:
        """The class names as a visitor would type them."""
        return ", ".join(self.classes)


@dataclass(frozen=True)
class LessonExample:
    """A lesson that ships: its title, and its folder's name."""

    title: str
    folder: str

    @property
    def path(self) -> Path:
        """Where its pictures are, and the result that was computed from them."""
        return FOLDER / self.folder

    @property
    def lesson(self) -> FewShotRequest:
        """The classes in alphabetical order, and the pictures to try, each with its class."""
        rows = [ClassRow(_words(one), _pictures(one)) for one in _folders(self.path / "teach")]
        samples = [
            SampleFile(path, _words(one)) for one in _folders(self.path / "try") for path in _pictures(one)
        ]
        return FewShotRequest(tuple(rows), tuple(samples))

    @property
    def photos(self) -> tuple[SampleFile, ...]:
        """All its pictures, each with its class."""
        lesson = self.lesson
        taught = tuple(SampleFile(path, row.name) for row in lesson.rows for path in row.paths)
        return (*taught, *lesson.samples)


@dataclass(frozen=True)
class RollExample:
    """Photos without labels, and names for them; the class of each is there to count afterwards."""

    title: str
    photos: tuple[SampleFile, ...]
    classes: tuple[str, ...]

    @classmethod
    def of_one(cls, lesson: LessonExample) -> RollExample:
        """The pictures of a lesson under its own classes."""
        return cls(lesson.title, lesson.photos, lesson.lesson.classes)

    @classmethod
    def of_several(cls, title: str, lessons: dict[str, LessonExample]) -> RollExample:
        """The pictures of several lessons, each lesson under one name."""
        photos = tuple(
            SampleFile(one.path, name) for name, lesson in lessons.items() for one in lesson.photos
        )
        return cls(title, photos, tuple(lessons))

    @property
    def some(self) -> tuple[str, ...]:
        """A few of the photos, from all over."""
        step = len(self.photos) // SHOWN
        return tuple(photo.path for photo in self.photos[step // 2 :: step][:SHOWN])


@dataclass(frozen=True)
class ForgetExample:
    """A lesson whose fine classes are forgotten, while its pictures are still told from another's."""

    fine: LessonExample
    other: LessonExample
    names: tuple[str, str]  # what all pictures of each are
    each: int = 10  # pictures of each to keep

    @property
    def target(self) -> tuple[ClassRow, ...]:
        """What to forget: the fine classes."""
        rows = self.fine.lesson.rows
        tried = self.fine.lesson.samples
        return tuple(
            ClassRow(row.name, (*row.paths, *(one.path for one in tried if one.truth == row.name)))
            for row in rows
        )

    @property
    def control(self) -> tuple[ClassRow, ...]:
        """What to keep: one lesson against the other, as many pictures of every class as will do."""
        return tuple(
            ClassRow(name, _dealt([row.paths for row in one.lesson.rows], self.each))
            for name, one in zip(self.names, (self.fine, self.other), strict=True)
        )


def _dealt(paths: list[tuple[str, ...]], count: int) -> tuple[str, ...]:
    """So many of them, taken in turn."""
    turns = [path for turn in zip(*paths, strict=False) for path in turn]
    return tuple(turns[:count])


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir())


def _pictures(folder: Path) -> tuple[str, ...]:
    return tuple(str(path) for path in sorted(folder.glob("*.jpg")))


def _words(folder: Path) -> str:
    return folder.name.replace("_", " ")


APPLES, MELONS = LessonExample("Apples", "apples"), LessonExample("Melons", "melons")
LESSONS = (MELONS, APPLES)  # the page opens on the first
ROLLS = (
    RollExample.of_several(
        roll_text.EXAMPLE_TITLE, dict(zip(roll_text.EXAMPLE_NAMES, (APPLES, MELONS), strict=True))
    ),
    *(RollExample.of_one(lesson) for lesson in LESSONS),
)
FORGET = ForgetExample(APPLES, MELONS, names=forget_text.EXAMPLE_KEEPS)

EXAMPLES = (
    Example(
        "Things",
        ("cat.jpg", "coffee.jpg", "rocket.jpg"),
        ("cat", "dog", "coffee", "soup", "rocket", "aeroplane"),
    ),
    Example(
        "Finer words",
        ("cat.jpg", "coffee.jpg"),
        ("tabby cat", "Siamese cat", "lynx", "espresso", "tea", "tomato soup"),
    ),
    Example(
        "No colour",
        ("horse.jpg", "photographer.jpg"),
        ("horse", "cow", "photographer", "cook", "bicycle", "tree"),
    ),
)
