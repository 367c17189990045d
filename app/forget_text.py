"""What a visitor reads on the tab that forgets. Knows nothing else."""

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
SEE_PICTURES = "Move the slider, and some of the pictures show here: as it was, and now."
RECIPE_DOWNLOAD = "Download the recipe"
SHELL_HEADING = "The same from a terminal"
TARGET_FOLDER, CONTROL_FOLDER = "to_forget", "to_keep"

API_TARGET = "A zip of what to forget, one folder of pictures per class"
API_CONTROL = "A zip of what to keep, one folder of pictures per class"
API_KEEP = "Share of what is right among the classes to keep that must stay, 0 to 1"
API_FORGET = (
    "Forget the classes of one zip and keep those of another. Streams {phase, share, seconds_left}, then "
    'returns the result and the recipe\'s file. The result is {"verdict", "helped", "kept", '
    '"strengths": [{"strength", "target", "control"}], "seconds", "stopped", "left_out": [sentence]}: the '
    "shares of pictures named right at each strength, on all pictures given."
)


def nothing_to(side: str) -> str:
    """The refusal of a side without pictures."""
    return f"{side}: there is no picture yet. Give a folder or a zip with one folder of pictures per class."


def no_class(name: str) -> str:
    """The refusal of a picture whose class nobody told."""
    return f"{name[:60]} has no class. Give a folder or a zip with one folder of pictures per class."


def about(side: str, sentence: str) -> str:
    """A refusal that concerns one side."""
    return f"{side}: {sentence}"


def share(before: float, now: float) -> str:
    """An accuracy as it was and now.

    >>> share(0.366, 0.2)
    '37% → 20%'
    """
    return f"{before:.0%} → {now:.0%}"


def curve_words(target: tuple[float, float], control: tuple[float, float]) -> str:
    """What a screen reader says for the curves."""
    return f"{TARGET_SIDE}: {share(*target)} from no strength to full. {CONTROL_SIDE}: {share(*control)}."


def taken(seconds: float, pictures: int) -> str:
    """The line under a verdict."""
    return f"Learned in {seconds:.0f} s from {pictures} pictures."
