"""The tab that forgets."""

from __future__ import annotations

from app.limits import LIMITS

TAB = "Forget"
LEAD = (
    "Make the model lose some classes on purpose, and keep others. A slider then shows what each strength "
    "costs."
)

EXAMPLES_HEADING = "An example"
EXAMPLE_TITLE = "Kinds of apple"
EXAMPLE_KEEPS = ("apple", "melon")
EXAMPLE_LABEL = "Fill in: forget the kinds of apple, keep telling apples from melons"
EXAMPLE_NOTE = (
    "A worked example: the kinds of apple are forgotten, apples are still told from melons. Your own result "
    "will show here."
)
TARGET_HEADING, CONTROL_HEADING = "1. What to forget (the target)", "2. What to keep (the control)"
FOLDERS_HELP = (
    "A folder or a zip with one folder of pictures per class: two classes or more, several pictures each."
)
TARGET_LABEL, CONTROL_LABEL = "Pictures to forget", "Pictures to keep"
KEEP_LABEL = "Keep at least"
KEEP_HELP = "How much of what it gets right among the classes to keep must stay, in percent."
START = "Forget"
WAITING = "Press Forget, and the result shows here."
EXPIRED = (
    f"Your result has expired: results are kept for about {LIMITS.keep_seconds // 60} minutes. "
    "Press Forget again."
)

STRENGTH_LABEL = "How strongly to forget, in percent"
STRENGTH_HELP = "0 is the model as it was, 100 is what was learned. The pictures below follow."
NUMBERS_HEADING = "Named right at this strength"
TARGET_SIDE, CONTROL_SIDE = "To forget (target)", "To keep (control)"
MEASURED_NOTE = (
    "Counted on all pictures that you gave, each among the classes of its own side. About half of them were "
    "learned from; the sentence above counts only the others."
)
TABLE_COLUMNS = ("Strength", TARGET_SIDE, CONTROL_SIDE)
TABLE_SUMMARY = "All strengths as a table"
AS_IT_WAS, NOW = "As it was", "Now"
SEE_IMAGES = "Move the slider, and some of the pictures show here: as it was, and now."
RECIPE_DOWNLOAD = "Download the recipe"
SHELL_HEADING = "The same from a terminal"
TARGET_FOLDER, CONTROL_FOLDER = "to_forget", "to_keep"


def no_images(side: str) -> str:
    """The refusal of a side without images."""
    return f"{side}: there is no picture yet. Give a folder or a zip with one folder of pictures per class."


def no_class(name: str) -> str:
    """The refusal of an image without a class."""
    return f"{name[:60]} has no class. Give a folder or a zip with one folder of pictures per class."


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
    return f"{TARGET_SIDE}: {change(*target)} from no strength to full. {CONTROL_SIDE}: {change(*control)}."


def took(seconds: float, images: int) -> str:
    """The line under a verdict."""
    return f"Learned in {seconds:.0f} s from {images} pictures."
