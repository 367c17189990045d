"""The form of the tab that needs no labels."""

from __future__ import annotations

import atlas_engine as atlas
from app.limits import LIMITS

TAB = "No labels"
LEAD = (
    "Photos without labels, and the names of what they might show: the model adapts to the photos "
    "themselves, and goes back to zero-shot where that looks unsafe."
)

EXAMPLES_HEADING = "Try an example"
EXAMPLE_TITLE, EXAMPLE_NAMES = "Apples or melons", ("apple", "melon")
IMAGES_HEADING, NAMES_HEADING = "1. Your photos", "2. What they might show"
IMAGES_HELP = (
    "Forty or more, best of all the things you name: with fewer photos, or where the names hardly tell them "
    "apart, Automatic keeps zero-shot."
)
IMAGES_LABEL = f"Photos (up to {LIMITS.unlabelled_images})"
ZIP_HELP = (
    "A sub-folder that is called like one of the names is used to count what is right when all is over, and "
    "for nothing else."
)
ALL_PRESENT_LABEL = "Every one of these names is among the photos"
ALL_PRESENT_HELP = (
    "Tick it only if you know it: using every name helps more, and harms where some are missing."
)
METHOD_HELP = (
    "Automatic does what is safe, and undoes what a check speaks against. The others do as told. What is "
    f"slow has {LIMITS.run_seconds:.0f} seconds here, and then keeps the best so far."
)
METHOD_NAMES = {method.name: method.title for method in atlas.list_methods("test-time") if method.title}

NO_IMAGES = "There is no photo yet. Add some, the more the better, then adapt again."
NONE_READ = "None of the photos could be read."
AGAIN_COMMENT = "or adapt again, to the same photos in one folder"


def many_images(count: int) -> str:
    """The refusal of too many images."""
    return f"There are {count} photos, but at most {LIMITS.unlabelled_images} are taken at once. Remove some."


def asked_for(name: str) -> str:
    """The verdict on a method that the visitor chose."""
    return f"“{name}” was asked for; without labels nobody can measure whether it helps."


def example_label(title: str, classes: tuple[str, ...]) -> str:
    """What a screen reader says for the button of an example."""
    return f"Adapt to an example: {title}. Names: {', '.join(classes)}"
