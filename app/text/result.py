"""A run and its result: progress, verdict, comparison."""

from __future__ import annotations

from app.limits import LIMITS

HEADING = "Result"
TAB_COMPARE, TAB_INSIDE, TAB_TAKE = "Compare", "Look inside", "Take away"
WAITING = "Try an example, or give your own pictures and press Adapt: the result shows here."
EXAMPLE_NOTE = "A worked example. Your own result will show here."
STOPPED_NOTE = "Stopped before the end: this is the best so far."
BROUGHT = "This recipe was brought along: whether it helps was not measured here."
EXPIRED = (
    f"Your result has expired: results are kept for about {LIMITS.keep_seconds // 60} minutes. Press Adapt "
    "again, or bring its recipe if you downloaded it."
)

# ---- what the numbers are

KEPT_MARK = "kept"
HELD_OUT_QUESTION = "What these numbers are"
HELD_OUT_NOTE = (
    "How many are named right, estimated on the pictures you taught it with, each answered by a model that "
    "did not see it; the band is the 95% interval. A head is a small classifier on top; task vectors change "
    "the model itself. Both together are kept unless the head alone is ahead by more than one picture, which "
    "may be chance, and zero-shot where it is ahead."
)
OVERLAP_NOTE = "The bands overlap, so part of the difference may be chance. More pictures would tell."
METHOD_SHORT = {
    "zero-shot": "Zero-shot",
    "text-probe": "A head alone",
    "atlas+text-probe": "Task vectors + head",
}
LOSS_LABEL = "Loss, lower is better"

# ---- image by image

ZERO_SHOT, ADAPTED, NOW = "Zero-shot", "Adapted", "Now"
SIDES_NOTE = (
    "Zero-shot is the model as it was, told only your class names. Adapted is the model after it saw your "
    "pictures."
)
COMPARE_SOON = "Your pictures show here side by side as soon as there is a first guess."
PREVIEW_NOTE = "A first guess after one look. The model is still learning."
NO_SAMPLES = "Add pictures to try it on (step 2), and adapt again to see them side by side."
CHANGE_NAMES = {"fixed": "Fixed", "broken": "Broken", "changed": "Changed", "same": "Same"}
RIGHT, WRONG = "right", "wrong"
MAP_AS_TABLE = "The same numbers as a table"


def phase(name: str, index: int, of: int) -> str:
    """What a run is doing now."""
    return {
        "read": f"Reading the pictures: {index} of {of} …",
        "select": "Choosing task vectors for the pictures …",
        "look": "Looking at the pictures …",
        "preview": "A first guess is ready. Learning starts …",
        "search": f"Trying strengths of one donor: {index + 1} of {of} …",
        "learn": f"Learning: step {index + 1} of {of}",
        "measure": f"Counting what is named right at each strength: {index + 1} of {of} …",
        "done": "Done.",
    }[name]


def time_left(seconds: float) -> str:
    """How long it will take, roughly.

    >>> time_left(3.2), time_left(75)
    ('about 4 s left', 'about 1 min 15 s left')
    """
    whole = max(1, int(seconds + 0.99))
    minutes, rest = divmod(whole, 60)
    return f"about {minutes} min {rest} s left" if minutes else f"about {rest} s left"


def took(seconds: float, images: int) -> str:
    """The line under a verdict."""
    tried = "1 picture tried" if images == 1 else f"{images} pictures tried"
    return f"Learned in {seconds:.0f} s; {tried}." if seconds >= 1 else f"{tried[0].upper()}{tried[1:]}."


def asked_for(name: str) -> str:
    """The verdict on a method that the visitor chose, and whose gain nothing was held out to measure."""
    return f"“{name}” was asked for; whether it helps was not measured."


def loss_change(first: float, last: float) -> str:
    """What learning did to the loss, in as many digits as tell it.

    >>> loss_change(1, 0.5), loss_change(0.0123, 0.0004)
    ('Loss, lower is better: 1.00 → 0.50', 'Loss, lower is better: 0.012 → 0.0004')
    """
    digits = ".2f" if max(abs(first), abs(last)) >= 0.1 else ".2g"
    return f"{LOSS_LABEL}: {first:{digits}} → {last:{digits}}"


def interval(accuracy: float, low: float, high: float) -> str:
    """An estimate with its interval, in whole percents."""
    return f"{accuracy:.0%} ({low:.0%} to {high:.0%})"


def changed_summary(changed: int, total: int, fixed: int, broken: int, known: int) -> str:
    """How many of the samples have another answer now.

    >>> changed_summary(3, 8, 2, 1, 8)
    '3 of 8 pictures have another answer now: 2 fixed, 1 broken.'
    """
    counts = f"{changed} of {total} pictures have another answer now"
    return f"{counts}: {fixed} fixed, {broken} broken." if known else f"{counts}."


def accuracy_summary(before: int, after: int, known: int) -> str:
    """How many of the samples whose class is known are right, before and after."""
    return f"Right: {before} of {known} by zero-shot, {after} of {known} adapted."


def more_the_same(count: int) -> str:
    """What opens the images whose answer did not change, where there are many."""
    return f"{count} more with the same answer as before"


def label_caption(label: str) -> str:
    """The class that the visitor gave for an image."""
    return f"is: {label}"


def confusion_title(side: str) -> str:
    """The heading of a map of which classes are taken for which."""
    return f"{side}: what is taken for what"
