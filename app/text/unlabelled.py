"""The form for images without labels."""

from __future__ import annotations

import atlas_engine as atlas
from app.limits import LIMITS
from app.text.language import say

LEAD = say(
    "Images without labels, and the names of what they might show: the model adapts to the images "
    "themselves, and goes back to what it was where that looks unsafe."
)

EXAMPLES_HEADING = say("Try an example")
EXAMPLE_TITLE, EXAMPLE_NAMES = say("Apples or melons"), ("apple", "melon")
IMAGES_HEADING, NAMES_HEADING = say("1. Your images"), say("2. What they might show")
IMAGES_HELP = say(
    "Forty or more, best of all the things you name: with fewer images, or where the names hardly tell them "
    "apart, Automatic keeps the model as it was."
)
IMAGES_LABEL = say("Images (up to {most})", most=LIMITS.unlabelled_images)
ZIP_HELP = say(
    "A sub-folder that is called like one of the names is used to count what is right when all is over, "
    "and for nothing else."
)
ALL_PRESENT_LABEL = say("Every one of these names is among the images")
ALL_PRESENT_HELP = say(
    "Tick it only if you know it: using every name helps more, and harms where some are missing."
)
METHOD_HELP = say(
    "Automatic does what is safe, and undoes what a check speaks against. The others do as told. What is "
    "slow has {seconds} seconds here, and then keeps the best so far.",
    seconds=f"{LIMITS.run_seconds:.0f}",
)
METHOD_NAMES = {method.name: method.title for method in atlas.list_methods("test-time") if method.title}

NO_IMAGES = say("There is no image yet. Add some, the more the better, then press Learn again.")
NONE_READ = say("None of the images could be read.")
AGAIN_COMMENT = say("or adapt again, to the same images in one folder")


def many_images(count: int) -> str:
    """The refusal of too many images."""
    return say(
        "There are {count} images, but at most {most} are taken at once. Remove some.",
        count=count,
        most=LIMITS.unlabelled_images,
    )


def asked_for(name: str) -> str:
    """The verdict on a method that the visitor chose."""
    return say("“{name}” was asked for; without labels nobody can measure whether it helps.", name=name)


def example_label(title: str, classes: tuple[str, ...]) -> str:
    """What a screen reader says for the button of an example."""
    return say("Adapt to an example: {title}. Names: {names}", title=title, names=", ".join(classes))
