"""The tab that forgets."""

from __future__ import annotations

from app.limits import LIMITS
from app.text.language import say

TAB = say("Forget")
LEAD = say(
    "Make the model lose some classes on purpose, and keep others. A slider then shows what each strength "
    "costs."
)

EXAMPLES_HEADING = say("An example")
EXAMPLE_TITLE = say("Kinds of apple")
EXAMPLE_KEEPS = ("apple", "melon")
EXAMPLE_LABEL = say("Fill in: forget the kinds of apple, keep telling apples from melons")
EXAMPLE_NOTE = say(
    "A worked example: the kinds of apple are forgotten, apples are still told from melons. Your own result "
    "will show here."
)
TARGET_HEADING, CONTROL_HEADING = say("1. What to forget (the target)"), say("2. What to keep (the control)")
FOLDERS_HELP = say(
    "A folder or a zip with one folder of images per class: two classes or more, several images each."
)
TARGET_LABEL, CONTROL_LABEL = say("Images to forget"), say("Images to keep")
KEEP_LABEL = say("Keep at least")
KEEP_HELP = say("How much of what it gets right among the classes to keep must stay, in percent.")
START = say("Forget")
WAITING = say("Press Forget, and the result shows here.")
EXPIRED = say(
    "Your result has expired: results are kept for about {minutes} minutes. Press Forget again.",
    minutes=LIMITS.keep_seconds // 60,
)

STRENGTH_LABEL = say("How strongly to forget, in percent")
STRENGTH_HELP = say("0 is the model as it was, 100 is what was learned. The images below follow.")
NUMBERS_HEADING = say("Named right at this strength")
TARGET_SIDE, CONTROL_SIDE = say("To forget (target)"), say("To keep (control)")
MEASURED_NOTE = say(
    "Counted on all images that you gave, each among the classes of its own side. About half of them were "
    "learned from; the sentence above counts only the others."
)
TABLE_COLUMNS = (say("Strength"), TARGET_SIDE, CONTROL_SIDE)
TABLE_SUMMARY = say("All strengths as a table")
AS_IT_WAS, NOW = say("As it was"), say("Now")
SEE_IMAGES = say("Move the slider, and some of the images show here: as it was, and now.")
RECIPE_DOWNLOAD = say("Download the recipe")
SHELL_HEADING = say("The same from a terminal")
TARGET_FOLDER, CONTROL_FOLDER = "to_forget", "to_keep"


def no_images(side: str) -> str:
    """The refusal of a side without images."""
    return say(
        "{side}: there is no image yet. Give a folder or a zip with one folder of images per class.",
        side=side,
    )


def no_class(name: str) -> str:
    """The refusal of an image without a class."""
    return say(
        "{name} has no class. Give a folder or a zip with one folder of images per class.", name=name[:60]
    )


def refused_side(side: str, sentence: str) -> str:
    """A refusal that concerns one side."""
    return f"{side}: {sentence}"


def change(before: float, now: float) -> str:
    """An accuracy as it was and now.

    >>> change(0.366, 0.2)
    '37% → 20%'
    """
    return f"{before:.0%} → {now:.0%}"


def curves_label(target: tuple[float, float], control: tuple[float, float]) -> str:
    """What a screen reader says for the curves."""
    return say(
        "{target_side}: {target} from no strength to full. {control_side}: {control}.",
        target_side=TARGET_SIDE,
        target=change(*target),
        control_side=CONTROL_SIDE,
        control=change(*control),
    )


def took(seconds: float, images: int) -> str:
    """The line under a verdict."""
    return say("Learned in {seconds} s from {images} images.", seconds=f"{seconds:.0f}", images=images)
