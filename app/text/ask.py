"""Asking before teaching: images and class names in, a ranking for each image out."""

from __future__ import annotations

from app.limits import LIMITS
from app.text.language import say

CLASSES_LABEL = say("What might they show?")
CLASSES_HELP = say("Two or more words, separated by commas or new lines.")
CLASSES_PLACEHOLDER = say("otter, seal, walrus")
EXAMPLES_HEADING = say("Or ask without teaching")
ANSWERS_NOTE = say(
    "The percentages share 100% among your words. The model always chooses, even when no word fits."
)
STOPPED = say("Stopped. The answers so far are kept.")
NO_IMAGES = say("There is no image yet. Add at least one, then ask again.")


def many_images(count: int) -> str:
    """The refusal of a question with too many images."""
    return say(
        "There are {count} images, but at most {most} are taken at once. Remove some.",
        count=count,
        most=LIMITS.images,
    )


def progress(seen: int, total: int) -> str:
    """How far the question has come.

    >>> progress(0, 1), progress(8, 20)
    ('Looking at the image …', 'Looking at the images: 8 of 20 done …')
    """
    if total == 1:
        return say("Looking at the image …")
    return say("Looking at the images: {seen} of {total} done …", seen=seen, total=total)


def finished(answered: int, classes: int) -> str:
    """The closing line of a question.

    >>> finished(1, 3)
    '1 image, 3 words.'
    """
    if answered == 1:
        return say("1 image, {classes} words.", classes=classes)
    return say("{count} images, {classes} words.", count=answered, classes=classes)


def example_label(title: str, classes: tuple[str, ...]) -> str:
    """What a screen reader says for the button of an example."""
    return say("Example: {title}. Words: {words}", title=title, words=", ".join(classes))
