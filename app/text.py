"""Every word that a visitor reads, except the sentences that come from the engine. Knows nothing else."""

from __future__ import annotations

from app.limits import LIMITS

TITLE = "aTLAS Studio"
LEAD = "Drop in pictures, type what they might show, and see which words fit."

IMAGES_LABEL = f"Pictures (up to {LIMITS.images})"
CLASSES_LABEL = "What might they show?"
CLASSES_HELP = "Two or more words, separated by commas or new lines."
CLASSES_PLACEHOLDER = "otter, seal, walrus"
ASK = "Ask"
STOP = "Stop"

EXAMPLES_HEADING = "Or try one of these"
ANSWERS_HEADING = "Answers"
OPENING = "An example. Your own pictures will show here."
ANSWERS_NOTE = (
    "The percentages share 100% among your words. The model always chooses, even when no word fits."
)
FOOTNOTE = (
    f"Pictures are used for your answer only, and deleted within {LIMITS.longest_stay_minutes} minutes."
)

BANNER_HEADING = "The model that ships with aTLAS is answering."
LEFT_OUT_HEADING = "Left out:"
STOPPED = "Stopped. The answers so far are kept."

NO_IMAGES = "There is no picture yet. Add at least one, then ask again."
BROKEN = (
    "Something went wrong on our side, and it is not your fault. Your input is still here: please ask again."
)
NO_ADDRESSES = "Pictures are not fetched from web addresses. Save the picture, then upload the file."
TOO_LARGE = "The request is too large. Upload pictures as files, and send fewer class names."

API_IMAGES = "Pictures"
API_CLASSES = "Class names"
API_ROWS = "Answers"
API_PREDICT = (
    "Rank class names for each picture. `classes` is one text, separated by commas or line ends. Returns "
    '{"rows": [{"image", "label", "prob", "top": [{"label", "prob"}]}], "left_out": [sentence]}.'
)


def few_classes(count: int) -> str:
    """The refusal of a question with fewer than two class names."""
    seen = "no class name" if count == 0 else "one class name"
    return f"There is {seen} yet, and a choice needs at least two. Type more, separated by commas."


def many_classes(count: int) -> str:
    """The refusal of a question with too many class names."""
    return f"There are {count} class names, but at most {LIMITS.classes} are taken at once. Remove some."


def many_images(count: int) -> str:
    """The refusal of a question with too many pictures."""
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
    pictures = "1 picture" if answered == 1 else f"{answered} pictures"
    return f"{pictures}, {classes} words."


def percent(prob: float) -> str:
    """A probability in whole percents, never rounded to a certainty.

    >>> percent(0.974), percent(0.0004), percent(0.9996)
    ('97%', '<1%', '>99%')
    """
    if 0 < prob < 0.005:
        return "<1%"
    if 0.995 <= prob < 1:
        return ">99%"
    return f"{prob:.0%}"


def picture_alt(name: str) -> str:
    """What a screen reader says in place of a picture."""
    return f"Your picture {name}"


def example_label(title: str, classes: tuple[str, ...]) -> str:
    """What a screen reader says for the button of an example."""
    return f"Example: {title}. Words: {', '.join(classes)}"


def no_port(port: int | None) -> str:
    """Why the page cannot be served."""
    which = "the port" if port is None else f"port {port}"
    return f"{which} is taken by another program. Give another one with --port."


def address(url: str) -> str:
    """The line printed when the page can be opened."""
    return f"aTLAS Studio is ready: open {url}"
