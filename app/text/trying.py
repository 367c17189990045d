"""The state in which a visitor tries what was taught: any image is answered at once."""

from __future__ import annotations

from app.limits import LIMITS
from app.text.language import say

TAB = say("Try")
HEADING = say("Try any image")
LEAD = say("Drop, paste or take images: each is answered at once, before teaching beside now.")
IMAGES_LABEL = say("Images to try (up to {most})", most=LIMITS.samples)
WORDS_LABEL = say("Answers to choose from")
WORDS_HELP = say("What you taught. Type other words, with commas between, to ask without teaching.")
WORDS_PLACEHOLDER = say("otter, seal, walrus")
ANSWER = say("Answer")
NOTHING_TAUGHT = say(
    "Nothing is taught yet. Type two or more words and the images are matched to them, or teach it first."
)
NO_IMAGES = say("Drop an image here, and its answer shows at once.")
WRONG = say("That’s wrong: it is")
CHOOSE = say("choose …")
LEARN_AGAIN = say("Learn again")
FRESH = say("New")
NONE_OF_THESE = say("Perhaps it is none of these.")
IMAGE_GONE = say("That image is no longer among the images to try. Add it again.")


def answered(count: int, seconds: float) -> str:
    """The line beside the answers when all are there.

    >>> answered(1, 0.31), answered(3, 1.24)
    ('1 image answered in 0.3 s.', '3 images answered in 1.2 s.')
    """
    if count == 1:
        return say("1 image answered in {seconds} s.", seconds=f"{seconds:.1f}")
    return say("{count} images answered in {seconds} s.", count=count, seconds=f"{seconds:.1f}")


def corrected(label: str, count: int) -> str:
    """What a correction did."""
    return say(
        "Added to {label}, which has {count} now. Learn again, and it counts.", label=label, count=count
    )


def no_such_class(label: str) -> str:
    """The refusal of a correction to a class that is not taught."""
    return say("'{label}' is none of the classes that were taught. Choose one of them.", label=label[:60])


def wrong_label(name: str) -> str:
    """What a screen reader says for the choice of the right class."""
    return say("{name} is wrong: it is", name=name)
