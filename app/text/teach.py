"""The state in which a visitor teaches: classes with their images."""

from __future__ import annotations

import atlas_engine as atlas
from app.limits import LIMITS
from app.text.language import say

TAB = say("Teach")
EXAMPLES_HEADING = say("Examples")
LABELS_LABEL, LABELS_HELP = say("Your images"), say("Sorted by class it can learn most and check itself.")
LABELLED, UNLABELLED = say("I sort them by class"), say("They have no labels")
BACK = say("← Examples")

CLASS_PLACEHOLDERS = (say("otter"), say("seal"), say("walrus"))
ROW_IMAGES = say("Images")
ADD_ROW = say("Add a class")
ZIP_HELP = say("Two or more images of each class, and the page can check itself.")
START = say("Learn")

METHOD_HELP = say(
    "Automatic checks itself on images that it did not learn from, and keeps the model as it was where "
    "nothing beats it. What is slow has {seconds} seconds here, and then keeps the best so far.",
    seconds=f"{LIMITS.run_seconds:.0f}",
)
METHOD_NAMES = {method.name: method.title for method in atlas.list_methods("few-shot") if method.title}
NO_LEARNING = say("With a learning rate of 0 nothing is learned. Give a number above 0, as 0.05.")


def class_label(place: int) -> str:
    """The label of a class's name."""
    return say("Class {place}", place=place)


def remove_label(place: int) -> str:
    """What a screen reader says for the button that removes a class."""
    return say("Remove class {place}", place=place)


def count(images: int) -> str:
    """How many images a class has."""
    return say("1 image") if images == 1 else say("{count} images", count=images)


def rows_summary(rows: list[tuple[str, int]]) -> str:
    """What there is to learn from (class names, each with its number of images), and what would help most.

    >>> rows_summary([("otter", 3), ("seal", 1)])
    '2 classes, 4 images. A second image of seal would let the page check itself.'
    """
    classes = say("1 class") if len(rows) == 1 else say("{count} classes", count=len(rows))
    counts = f"{classes}, {count(sum(images for _, images in rows))}."
    names = [name.casefold() for name, _ in rows]
    repeated = [name for name, _ in rows if names.count(name.casefold()) > 1]
    if repeated:
        return f"{counts} {say('The name {name} stands twice: change one.', name=repeated[-1][:60])}"
    single = [name for name, images in rows if images == 1]
    if single:
        more = say("A second image of {name} would let the page check itself.", name=single[0][:60])
        return f"{counts} {more}"
    return counts


def example_label(title: str, classes: tuple[str, ...]) -> str:
    """What a screen reader says for the button of an example."""
    return say("Worked example: {title}. Classes: {classes}", title=title, classes=", ".join(classes))


# ---- refusals


def few_rows(count: int) -> str:
    """The refusal of fewer than two classes."""
    if count == 0:
        return say(
            "There is no class yet, and telling apart needs at least two. Name two and give each some images."
        )
    return say(
        "There is one class yet, and telling apart needs at least two. Name two and give each some images."
    )


def many_rows(count: int) -> str:
    """The refusal of too many classes."""
    return say(
        "There are {count} classes, but this page takes at most {most}. Remove some, or use the Python "
        "library, which takes more.",
        count=count,
        most=LIMITS.rows,
    )


def no_name(place: int) -> str:
    """The refusal of images without a class name."""
    return say("Class {place} has images but no name. Type one, or remove the class.", place=place)


def no_images(name: str) -> str:
    """The refusal of a class name without images."""
    return say("Class '{name}' has no images. Add two or more, or remove the class.", name=name[:60])


def many_support_images(count: int) -> str:
    """The refusal of too many images to learn from."""
    return say(
        "There are {count} images to learn from, but at most {most} are taken. Remove some.",
        count=count,
        most=LIMITS.support_images,
    )


def many_samples(count: int) -> str:
    """The refusal of too many images to try it on."""
    return say(
        "There are {count} images to try it on, but at most {most} are taken. Remove some.",
        count=count,
        most=LIMITS.samples,
    )
