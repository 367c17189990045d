"""The first screen: what this is, one worked example as a strip, and one button."""

from __future__ import annotations

from app.text.language import say

START = say("Teach it my own images")
STORY_LABEL = say("A worked example")
BEFORE, WITHOUT = say("Before"), say("Without it")
RIGHT_MARK, WRONG_MARK = "✓", "✗"


def after(images: int) -> str:
    """The heading of the answer after teaching."""
    return say("After {count} images", count=images)


def borrowed(about: str) -> str:
    """The toggle's label: which borrowed knowledge can be switched off."""
    return say("Borrowed from {about}: try without", about=about)


def is_a(label: str) -> str:
    """What the example's image shows."""
    return say("It is: {label}", label=label)
