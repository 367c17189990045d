"""The ready examples: pictures to ask about, and lessons to teach. Knows nothing of Gradio or models.

A lesson is a folder: `teach/CLASS/*.jpg` to learn from, `try/CLASS/*.jpg` to try it on, and what `app.worked`
made of them. assets/examples/README.md has every picture's origin and licence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.handlers.lesson import Lesson, Row, Sample

__all__ = ["EXAMPLES", "FOLDER", "LESSONS", "Example", "LessonExample"]

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
    def lesson(self) -> Lesson:
        """The classes in alphabetical order, and the pictures to try, each with its class."""
        rows = [Row(_words(one), _pictures(one)) for one in _folders(self.path / "teach")]
        samples = [
            Sample(path, _words(one)) for one in _folders(self.path / "try") for path in _pictures(one)
        ]
        return Lesson(tuple(rows), tuple(samples))

    @property
    def photos(self) -> tuple[Sample, ...]:
        """All its pictures as photos without labels; the class of each is there to count afterwards."""
        lesson = self.lesson
        taught = tuple(Sample(path, row.name) for row in lesson.rows for path in row.paths)
        return (*taught, *lesson.samples)


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.iterdir() if path.is_dir())


def _pictures(folder: Path) -> tuple[str, ...]:
    return tuple(str(path) for path in sorted(folder.glob("*.jpg")))


def _words(folder: Path) -> str:
    return folder.name.replace("_", " ")


LESSONS = (LessonExample("Apples", "apples"), LessonExample("Melons", "melons"))

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
