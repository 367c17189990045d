"""The ready examples: pictures and the words to ask about them. Knows nothing of Gradio or models.

The pictures are in the public domain; assets/examples/README.md has their origin and licence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["EXAMPLES", "FOLDER", "Example"]

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
