"""The panel of things to take away: recipe, weights, lines of code, a link."""

from __future__ import annotations

from app.limits import LIMITS
from app.text.language import say

RECIPE_HEADING = say("The recipe")
RECIPE_HELP = say(
    "A small file that rebuilds the adapted model from the base model and its bank. No image is in it."
)
RECIPE_DOWNLOAD = say("Download the recipe")
RECIPE_UPLOAD = say("Bring a recipe")
WEIGHTS_HEADING = say("The weights")
WEIGHTS_HELP = say(
    "The adapted image tower as a safetensors file, under open_clip's names. It is not all that was "
    "learned: the head, which gives the answers, is in the recipe, and the text tower stays as it was."
)
WEIGHTS_MAKE = say("Prepare the weights")
WEIGHTS_DOWNLOAD = say("Download the weights")
NO_BLOCK_MOVED = say(
    "No block of the image tower moved, so its weights are those of the base model, and there is nothing to "
    "prepare. What was learned is a head, or nothing: take the recipe."
)
NOTHING_TO_TAKE = say("There is no result yet. Press Learn first.")

EXPORT_HEADING = say("Without this page")
EXPORT_HELP = say(
    "The classifier for other programs: it answers on your own machine, and sends no image anywhere."
)
EXPORT_NAMES = {
    "html": say("Make a web page"),
    "onnx": say("Make an ONNX file"),
}
EXPORT_DOWNLOAD = say("Download {name}")
CODE_HEADING = say("The same in Python")
SHELL_HEADING = say("And from a terminal")
AGAIN_COMMENT = say("or learn it again, from a folder with one sub-folder of the same images per class")
STOPPED_COMMENT = say("stopped early here: learned again it goes on to its end, and may answer otherwise")
PREPARE_COMMENT = say("fetched, and its bank built, the first time")
BANK_COMMENT = say("bank.safetensors is the bank that this page was started with")

SHARE_HEADING = say("Share the settings")
SHARE_HELP = say("The link carries the class names and settings. Images stay with you.")
SHARE_LINK = say("Link to this page with these settings")
COPY_LINK = say("Copy the link")


def many_recipe_classes(name: str, count: int) -> str:
    """The refusal of a recipe with too many classes."""
    return say(
        "{name}: has {count} classes, but this page takes recipes of at most {most}. Use it with the Python "
        "library, which takes more.",
        name=name,
        count=count,
        most=LIMITS.classes,
    )
