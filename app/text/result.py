"""A run and its result: progress, verdict, answers image by image."""

from __future__ import annotations

from app.limits import LIMITS
from app.text.language import say

HEADING = say("Result")
TAB_COMPARE, TAB_INSIDE, TAB_TAKE = say("Answers"), say("Look inside"), say("Take away")
WAITING = say("Nothing is taught yet. Teach it some classes, and the result shows here.")
EXAMPLE_NOTE = say("A worked example. Your own result will show here.")
STOPPED_NOTE = say("Stopped before the end: this is the best so far.")
BROUGHT = say("This recipe was brought along: whether it helps was not measured here.")
EXPIRED = say(
    "Your result has expired: results are kept for about {minutes} minutes. Press Learn again, or bring its "
    "recipe if you downloaded it.",
    minutes=LIMITS.keep_seconds // 60,
)

# ---- the verdict, as a teacher reads it

HELPED = say("It learned your classes.")
UNCLEAR = say("No clear difference yet: one image more or less may be chance.")
NOT_HELPED = say("Teaching did not help, so it answers as before.")
ALL_RIGHT = say(
    "It named all of them right before, so there was nothing left to learn. Harder images would show more."
)
COUNTED = say("Counted on your own images, each answered by a model that had not seen it.")
ONE_IMAGE_EACH = say("Add a second image of each class, and the page can tell what more images would bring.")
SHOW_ANYWAY = say("Show what it learned anyway")
SHOWN_ANYWAY = say("What it learned, though the model as it was named more images right.")
NOTHING_INSTEAD = say("There is nothing else to show: this is what was learned.")
DETAILS = say("Details")
MIXED_UP_HEADING = say("Mixed up most")

# ---- what the numbers are, for experts

KEPT_MARK = say("kept")
HELD_OUT_NOTE = say(
    "The share of your images that each way names right: every image is held out once, and answered by a "
    "model that did not see it. The band is the 95% interval. Zero-shot is the model as it was, told only "
    "your class names. A head is a small classifier on top; task vectors change the model itself. Both "
    "together are kept unless the head alone is ahead by more than one image, which may be chance, and "
    "zero-shot where it is ahead."
)
OVERLAP_NOTE = say("The bands overlap, so part of the difference may be chance. More images would tell.")
METHOD_SHORT = {
    "zero-shot": say("Zero-shot (as it was)"),
    "text-probe": say("A head alone"),
    "atlas+text-probe": say("Task vectors + head"),
}
LOSS_LABEL = say("Loss (how wrong it is while learning), lower is better")

# ---- image by image

BEFORE, NOW, AS_LEARNED, CHANGED = say("Before"), say("Now"), say("As learned"), say("Changed")
SAME_NOTE = say("Teaching did not help, so the model answers as before: one answer for each image.")
COMPARE_SOON = say("Your images show here side by side as soon as there is a first guess.")
PREVIEW_NOTE = say("A first guess after one look. It is still learning, and you can try it already.")
NO_SAMPLES = say("Drop, paste or take an image to try, and its answer shows here at once.")
CHANGE_NAMES = {
    "fixed": say("Fixed"),
    "broken": say("Broken"),
    "changed": say("Changed"),
    "same": say("Same"),
}
RIGHT, WRONG = say("right"), say("wrong")
MAP_AS_TABLE = say("The same numbers as a table")


def counts(before: int, after: int, images: int) -> str:
    """The verdict in numbers of images.

    >>> counts(4, 14, 16)
    'Before: 4 of 16 right. Now: 14 of 16.'
    """
    return say(
        "Before: {before} of {images} right. Now: {after} of {images}.",
        before=before,
        after=after,
        images=images,
    )


def counts_not_kept(before: int, learned: int, images: int) -> str:
    """The same where what was learned got fewer right, and was set aside."""
    return say(
        "Before: {before} of {images} right. With what it learned: {learned} of {images}.",
        before=before,
        learned=learned,
        images=images,
    )


def counts_so_far(before: int, learned: int | None, images: int) -> str:
    """The same while it is still learning; without `learned`, nothing is known of that yet.

    >>> counts_so_far(4, 9, 16)
    'Before: 4 of 16 right. So far: 9 of 16.'
    """
    if learned is None:
        return say("Before: {before} of {images} right.", before=before, images=images)
    return say(
        "Before: {before} of {images} right. So far: {learned} of {images}.",
        before=before,
        learned=learned,
        images=images,
    )


def more_images(more: int, now: float, then: tuple[float, float, float]) -> str:
    """How many more images are likely to help, and how much: `then` with its interval.

    >>> more_images(3, 0.44, (0.6, 0.4, 0.75))
    'With 3 more of each class it would likely get from 44% right to about 60% (40% to 75%).'
    """
    return say(
        "With {more} more of each class it would likely get from {now} right to about {then} "
        "({low} to {high}).",
        more=more,
        now=f"{now:.0%}",
        then=f"{then[0]:.0%}",
        low=f"{then[1]:.0%}",
        high=f"{then[2]:.0%}",
    )


def enough_images(more: int, now: float, then: tuple[float, float, float]) -> str:
    """That more images would bring little."""
    return say(
        "There are enough images: with {more} more of each class it would get from {now} right to "
        "about {then} ({low} to {high}).",
        more=more,
        now=f"{now:.0%}",
        then=f"{then[0]:.0%}",
        low=f"{then[1]:.0%}",
        high=f"{then[2]:.0%}",
    )


def mixed_up(true: str, answer: str, count: int, of: int) -> str:
    """Two classes that are taken for each other.

    >>> mixed_up("seal", "otter", 2, 4)
    'seal is taken for otter: 2 of 4'
    """
    return say("{true} is taken for {answer}: {count} of {of}", true=true, answer=answer, count=count, of=of)


def suspect(image: str, label: str, suggested: str) -> str:
    """An image whose class looks wrong."""
    return say(
        "{image} is given as {label}, but looks like {suggested}: check it.",
        image=image[:60],
        label=label,
        suggested=suggested,
    )


def odd(image: str, label: str) -> str:
    """An image that fits nowhere."""
    return say("{image} looks unlike the others of {label}: check it.", image=image[:60], label=label)


def phase(name: str, index: int, of: int) -> str:
    """What a run is doing now."""
    sentence = {
        "read": say("Reading the images: {done} of {of} …"),
        "select": say("Choosing what to borrow for these images …"),
        "encode": say("Looking at the images …"),
        "preview": say("A first guess is ready. Learning starts …"),
        "search": say("Trying strengths of one task vector: {step} of {of} …"),
        "learn": say("Learning: step {step} of {of}"),
        "measure": say("Counting what is named right at each strength: {step} of {of} …"),
        "done": say("Done."),
    }[name]
    return sentence.format(done=index, step=index + 1, of=of)


def time_left(seconds: float) -> str:
    """How long it will take, roughly.

    >>> time_left(3.2), time_left(75)
    ('about 4 s left', 'about 1 min 15 s left')
    """
    whole = max(1, int(seconds + 0.99))
    minutes, rest = divmod(whole, 60)
    if minutes:
        return say("about {minutes} min {seconds} s left", minutes=minutes, seconds=rest)
    return say("about {seconds} s left", seconds=rest)


def took(seconds: float) -> str:
    """How long learning took; '' where it was not learned here."""
    return say("Learned in {seconds} s.", seconds=f"{seconds:.0f}") if seconds >= 1 else ""


def asked_for(name: str) -> str:
    """The verdict on a method that the visitor chose, and whose gain nothing was held out to measure."""
    return say("“{name}” was asked for; whether it helps was not measured.", name=name)


def loss_change(first: float, last: float) -> str:
    """What learning did to the loss, in as many digits as tell it."""
    digits = ".2f" if max(abs(first), abs(last)) >= 0.1 else ".2g"
    return f"{LOSS_LABEL}: {first:{digits}} → {last:{digits}}"


def interval(accuracy: float, low: float, high: float) -> str:
    """An estimate with its interval, in whole percents."""
    return say(
        "{accuracy} ({low} to {high})", accuracy=f"{accuracy:.0%}", low=f"{low:.0%}", high=f"{high:.0%}"
    )


def changed_summary(changed: int, total: int, fixed: int, broken: int, known: int) -> str:
    """How many of the images have another answer now.

    >>> changed_summary(3, 8, 2, 1, 8)
    '3 of 8 images have another answer now: 2 fixed, 1 broken.'
    """
    if not known:
        return say("{changed} of {total} images have another answer now.", changed=changed, total=total)
    return say(
        "{changed} of {total} images have another answer now: {fixed} fixed, {broken} broken.",
        changed=changed,
        total=total,
        fixed=fixed,
        broken=broken,
    )


def accuracy_summary(before: int, after: int, known: int) -> str:
    """How many of the images whose class is known are right, before and after."""
    return say(
        "Of these images {before} of {known} were right before, and {after} of {known} are now.",
        before=before,
        after=after,
        known=known,
    )


def more_the_same(count: int) -> str:
    """What opens the images whose answer did not change, where there are many."""
    return say("{count} more with the same answer as before", count=count)


def label_caption(label: str) -> str:
    """The class that the visitor gave for an image."""
    return say("is: {label}", label=label)


def confusion_title(side: str) -> str:
    """The heading of a map of which classes are taken for which."""
    return say("{side}: what is taken for what", side=side)
