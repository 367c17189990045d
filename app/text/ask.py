"""The tab that learns nothing: images and class names in, a ranking for each image out."""

from __future__ import annotations

from app.limits import LIMITS

TAB = "Ask"
LEAD = "Drop in pictures, type what they might show, and see which words fit. Nothing is learned here."
IMAGES_LABEL = f"Pictures (up to {LIMITS.images})"
CLASSES_LABEL = "What might they show?"
CLASSES_HELP = "Two or more words, separated by commas or new lines."
CLASSES_PLACEHOLDER = "otter, seal, walrus"
START = "Ask"
EXAMPLES_HEADING = "Or try one of these"
ANSWERS_HEADING = "Answers"
ANSWERS_NOTE = (
    "The percentages share 100% among your words. The model always chooses, even when no word fits."
)
OPENING = "An example. Your own pictures will show here."
STOPPED = "Stopped. The answers so far are kept."
NO_IMAGES = "There is no picture yet. Add at least one, then ask again."


def many_images(count: int) -> str:
    """The refusal of a question with too many images."""
    return f"There are {count} pictures, but at most {LIMITS.images} are taken at once. Remove some."


def progress(seen: int, total: int) -> str:
    """How far the question has come.

    >>> progress(0, 1), progress(8, 20)
    ('Looking at the picture …', 'Looking at the pictures: 8 of 20 done …')
    """
    if total == 1:
        return "Looking at the picture …"
    return f"Looking at the pictures: {seen} of {total} done …"


def finished(answered: int, classes: int) -> str:
    """The closing line of a question.

    >>> finished(1, 3)
    '1 picture, 3 words.'
    """
    images = "1 picture" if answered == 1 else f"{answered} pictures"
    return f"{images}, {classes} words."


def example_label(title: str, classes: tuple[str, ...]) -> str:
    """What a screen reader says for the button of an example."""
    return f"Example: {title}. Words: {', '.join(classes)}"
