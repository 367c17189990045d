"""What stands around the states of the page, and what several of them share."""

from __future__ import annotations

import atlas_engine as atlas
from app.limits import LIMITS
from app.text.language import say

TITLE = "aTLAS Studio"
LEAD = say("A few images teach it your classes.")
EXPERIMENTS = say("Experiments")
FOOTNOTE = say(
    "Your images are deleted within {minutes} minutes after their last use.",
    minutes=LIMITS.longest_stay_minutes,
)
BANNER_HEADING = say("The model that ships with aTLAS is answering.")

GRADIO_WORDS = {  # Gradio's own words for a drop zone, by its own keys
    "upload_text.drop_gallery": say("Drop images"),
    "upload_text.click_to_upload": say("click to choose"),
}

# ---- runs, their settings and their files

STOP, STOPPING = say("Stop"), say("Stopping …")
LEAVE = say("Leave the queue")
LEFT = say("You left the queue. Nothing was run, and all that you gave is still here.")
STOPPED_EARLY = say("Stopped before anything was learned. All that you gave is still here.")
LEAVING = say("It is still learning. If you leave now, what it has learned so far is lost.")
LEFT_OUT_HEADING = say("Left out:")
SETTINGS = say("Advanced settings")
METHOD_LABEL, STEPS_LABEL, LR_LABEL, SEED_LABEL = (
    say("Method"),
    say("Steps"),
    say("Learning rate"),
    say("Seed"),
)
SEED_HELP = say("The same seed gives the same answer.")
TEMPLATES_LABEL = say("Sentences for the class names")
TEMPLATES_HELP = say(
    "What the model reads: each name inside of these sentences. Choose those published for a data set, or "
    "type one of your own with {} where the name goes."
)
OWN_TEMPLATES = say("the model's own")
TEMPLATE_CHOICES = (OWN_TEMPLATES, *atlas.list_templates())
FILL_FROM_FOLDER, FILL_FROM_ZIP = say("From a folder"), say("From a zip")
COPY, COPIED = say("Copy"), say("Copied")

# ---- refusals

BROKEN = say(
    "Something went wrong on our side, and it is not your fault. Your input is still here: please ask again."
)
NO_ADDRESSES = say("Images are not fetched from web addresses. Save the image, then upload the file.")
TOO_LARGE = say("The request is too large. Upload images as files, and send fewer class names.")
UPLOAD_TOO_LARGE = say(
    "These files have more than the {most} MB that are taken at once. Send fewer, or save them smaller.",
    most=LIMITS.upload_megabytes,
)
FILE_MESSAGES = {  # of files that the page checks before it sends them; the script fills in the names
    "no_picture": say("{name}: is not an image. Choose JPEG, PNG or WEBP files."),
    "other_ending": say("{name}: cannot be taken here. Choose a file that ends in {ending}."),
    "too_large": say("{name}: is larger than the {most} MB that are taken. Save it smaller."),
    "large_zip": say(
        "{name}: is larger than the {most} MB that are taken. Unpack it and choose the folder instead: the "
        "page makes its images smaller on the way."
    ),
    "too_many": say("{count} files were chosen, but at most {most} are taken here. Choose fewer."),
    "too_much": say(
        "These files have {sum} MB together, but at most {most} MB are taken at once. Choose fewer."
    ),
    "packing": say("Getting the folder {name} ready: {done} of {count} images …"),
    "no_pictures": say("{name}: is a folder without images. Choose one with JPEG, PNG or WEBP files."),
    "many_pictures": say(
        "{name}: is a folder of {count} images, but at most {most} are taken here. Choose a smaller one."
    ),
    "large_folder": say(
        "{name}: is a folder with more than {most} MB of images, even after making them smaller. Choose a "
        "smaller one."
    ),
    "no_zone": say(
        "Files cannot be dropped here. Press {folder} or {zip}.", folder=FILL_FROM_FOLDER, zip=FILL_FROM_ZIP
    ),
    "unread_folder": say("{name}: is a folder that the browser could not read to the end. Choose it again."),
}


def few_classes(count: int) -> str:
    """The refusal of fewer than two class names."""
    if count == 0:
        return say(
            "There is no class name yet, and a choice needs at least two. Type more, separated by commas."
        )
    return say(
        "There is one class name yet, and a choice needs at least two. Type more, separated by commas."
    )


def many_classes(count: int) -> str:
    """The refusal of too many class names."""
    return say(
        "There are {count} class names, but at most {most} are taken at once. Remove some.",
        count=count,
        most=LIMITS.classes,
    )


def many_sentences(classes: int, templates: int) -> str:
    """The refusal of too many sentences."""
    return say(
        "{classes} class names in {templates} sentences each are {count} to read, but at most {most} are "
        "taken. Choose fewer sentences or names.",
        classes=classes,
        templates=templates,
        count=classes * templates,
        most=LIMITS.sentences,
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
    return say("Your image {name}", name=name)


# ---- in the terminal


def no_port(port: int | None) -> str:
    """Why the page cannot be served."""
    which = "the port" if port is None else f"port {port}"
    return f"{which} is taken by another program. Give another one with --port."


def address(url: str) -> str:
    """The line printed when the page can be opened."""
    return f"aTLAS Studio is ready: open {url}"
