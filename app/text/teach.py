"""The form of the tab that learns from labelled images."""

from __future__ import annotations

import atlas_engine as atlas
from app.limits import LIMITS

TAB = "Teach it"
EXAMPLES_HEADING = "Worked examples"
OWN = "Start with my own pictures"
JUMP = "Jump to the result of the example"

CLASSES_HEADING = "1. Your classes"
CLASSES_LEAD = "Name each class and give it a few pictures: two or more each, and the page can check itself."
CLASS_PLACEHOLDERS = ("otter", "seal", "walrus")
ROW_IMAGES = "Pictures"
ADD_ROW = "Add a class"
ZIP_HELP = "A folder or a zip has one folder of pictures per class."
SAMPLES_HEADING = "2. Pictures to try it on"
SAMPLES_LABEL = f"Pictures to try (up to {LIMITS.samples})"
SAMPLES_ZIP_HELP = "With one folder per class the page also counts what is right."
START = "Adapt"

METHOD_HELP = (
    "Automatic checks itself on pictures held out, and keeps zero-shot where nothing beats it. What is slow "
    f"has {LIMITS.run_seconds:.0f} seconds here, and then keeps the best so far."
)
METHOD_NAMES = {method.name: method.title for method in atlas.list_methods("few-shot") if method.title}
NO_LEARNING = "With a learning rate of 0 nothing is learned. Give a number above 0, as 0.05."


def class_label(place: int) -> str:
    """The label of a row's name."""
    return f"Class {place}"


def remove_label(place: int) -> str:
    """What a screen reader says for the button that removes a row."""
    return f"Remove class {place}"


def rows_summary(rows: list[tuple[str, int]]) -> str:
    """What there is to learn from (class names, each with its number of images), and what would help most.

    >>> rows_summary([("otter", 3), ("seal", 1)])
    '2 classes, 4 pictures. A second picture of seal would let the page check itself.'
    """
    classes = "1 class" if len(rows) == 1 else f"{len(rows)} classes"
    total = sum(count for _, count in rows)
    counts = f"{classes}, {'1 picture' if total == 1 else f'{total} pictures'}."
    names = [name.casefold() for name, _ in rows]
    repeated = [name for name, _ in rows if names.count(name.casefold()) > 1]
    if repeated:
        return f"{counts} The name {repeated[-1][:60]} stands twice: change one."
    single = [name for name, count in rows if count == 1]
    if single:
        return f"{counts} A second picture of {single[0][:60]} would let the page check itself."
    return counts


def example_label(title: str, classes: tuple[str, ...]) -> str:
    """What a screen reader says for the button of an example."""
    return f"Worked example: {title}. Classes: {', '.join(classes)}"


# ---- refusals


def few_rows(count: int) -> str:
    """The refusal of fewer than two classes."""
    found = "no class" if count == 0 else "one class"
    return (
        f"There is {found} yet, and telling apart needs at least two. Name two and give each some pictures."
    )


def many_rows(count: int) -> str:
    """The refusal of too many classes."""
    return (
        f"There are {count} classes, but this page takes at most {LIMITS.rows}. Remove some, or use the "
        f"Python library, which takes more."
    )


def no_name(place: int) -> str:
    """The refusal of images without a class name."""
    return f"Class {place} has pictures but no name. Type one, or remove the row."


def no_images(name: str) -> str:
    """The refusal of a class name without images."""
    return f"Class '{name[:60]}' has no pictures. Add two or more, or remove the row."


def many_support_images(count: int) -> str:
    """The refusal of too many images to learn from."""
    most = LIMITS.support_images
    return f"There are {count} pictures to learn from, but at most {most} are taken. Remove some."


def many_samples(count: int) -> str:
    """The refusal of too many images to try it on."""
    return f"There are {count} pictures to try it on, but at most {LIMITS.samples} are taken. Remove some."
