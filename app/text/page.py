"""What stands around the tabs, and what several of them share."""

from __future__ import annotations

import atlas_engine as atlas
from app.limits import LIMITS

TITLE = "aTLAS Studio"
LEAD = "Teach a vision model your own classes with a few pictures each, and see what it learned."
FOOTNOTE = (
    f"Pictures are used for your answer only, and deleted within {LIMITS.longest_stay_minutes} minutes after "
    f"you last used them."
)
BANNER_HEADING = "The model that ships with aTLAS is answering."

GRADIO_WORDS = {  # Gradio's own words for a drop zone, by its own keys
    "upload_text.drop_gallery": "Drop pictures",
    "upload_text.click_to_upload": "click to choose",
}

# ---- runs, their settings and their files

STOP = "Stop"
LEAVE = "Leave the queue"
LEFT = "You left the queue. Nothing was run, and all that you gave is still here."
STOPPED_EARLY = "Stopped before anything was learned. All that you gave is still here."
LEFT_OUT_HEADING = "Left out:"
SETTINGS = "Advanced settings"
METHOD_LABEL, STEPS_LABEL, LR_LABEL, SEED_LABEL = "Method", "Steps", "Learning rate", "Seed"
SEED_HELP = "The same seed gives the same answer."
TEMPLATES_LABEL = "Sentences for the class names"
TEMPLATES_HELP = (
    "What the model reads: each name inside of these sentences. Choose those published for a data set, or "
    "type one of your own with {} where the name goes."
)
OWN_TEMPLATES = "the model's own"
TEMPLATE_CHOICES = (OWN_TEMPLATES, *atlas.list_templates())
FILL_FROM_FOLDER, FILL_FROM_ZIP = "From a folder", "From a zip"
COPY, COPIED = "Copy", "Copied"

# ---- refusals

BROKEN = (
    "Something went wrong on our side, and it is not your fault. Your input is still here: please ask again."
)
NO_ADDRESSES = "Pictures are not fetched from web addresses. Save the picture, then upload the file."
TOO_LARGE = "The request is too large. Upload pictures as files, and send fewer class names."
UPLOAD_TOO_LARGE = (
    f"These files have more than the {LIMITS.upload_megabytes} MB that are taken at once. Send fewer, or "
    f"save them smaller."
)
FILE_MESSAGES = {  # of files that the page checks before it sends them
    "no_picture": "{name}: is not a picture. Choose JPEG, PNG or WEBP files.",
    "other_ending": "{name}: cannot be taken here. Choose a file that ends in {ending}.",
    "too_large": "{name}: is larger than the {most} MB that are taken. Save it smaller.",
    "large_zip": (
        "{name}: is larger than the {most} MB that are taken. Unpack it and choose the folder instead: the "
        "page makes its pictures smaller on the way."
    ),
    "too_many": "{count} files were chosen, but at most {most} are taken here. Choose fewer.",
    "too_much": "These files have {sum} MB together, but at most {most} MB are taken at once. Choose fewer.",
    "packing": "Getting the folder {name} ready: {done} of {count} pictures …",
    "no_pictures": "{name}: is a folder without pictures. Choose one with JPEG, PNG or WEBP files.",
    "many_pictures": (
        "{name}: is a folder of {count} pictures, but at most {most} are taken here. Choose a smaller one."
    ),
    "large_folder": (
        "{name}: is a folder with more than {most} MB of pictures, even after making them smaller. Choose a "
        "smaller one."
    ),
    "no_zone": f"Files cannot be dropped here. Press {FILL_FROM_FOLDER} or {FILL_FROM_ZIP}.",
    "unread_folder": "{name}: is a folder that the browser could not read to the end. Choose it again.",
}


def few_classes(count: int) -> str:
    """The refusal of fewer than two class names."""
    found = "no class name" if count == 0 else "one class name"
    return f"There is {found} yet, and a choice needs at least two. Type more, separated by commas."


def many_classes(count: int) -> str:
    """The refusal of too many class names."""
    return f"There are {count} class names, but at most {LIMITS.classes} are taken at once. Remove some."


def many_sentences(classes: int, templates: int) -> str:
    """The refusal of too many sentences."""
    return (
        f"{classes} class names in {templates} sentences each are {classes * templates} to read, but at most "
        f"{LIMITS.sentences} are taken. Choose fewer sentences or names."
    )


# ---- small pieces


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


def capitalized(message: str) -> str:
    """The engine's message with a capital letter at the front.

    >>> capitalized("model 'x' is not known.")
    "Model 'x' is not known."
    """
    return message[:1].upper() + message[1:]


def image_alt(name: str) -> str:
    """What a screen reader says in place of an image."""
    return f"Your picture {name}"


# ---- in the terminal


def no_port(port: int | None) -> str:
    """Why the page cannot be served."""
    which = "the port" if port is None else f"port {port}"
    return f"{which} is taken by another program. Give another one with --port."


def address(url: str) -> str:
    """The line printed when the page can be opened."""
    return f"aTLAS Studio is ready: open {url}"
