"""The panel of things to take away: recipe, weights, lines of code, a link."""

from __future__ import annotations

from app.limits import LIMITS

RECIPE_HEADING = "The recipe"
RECIPE_HELP = (
    "A small file that rebuilds the adapted model from the base model and its bank. No picture is in it."
)
RECIPE_DOWNLOAD = "Download the recipe"
RECIPE_UPLOAD = "Bring a recipe"
WEIGHTS_HEADING = "The weights"
WEIGHTS_HELP = (
    "The adapted image tower as a safetensors file, under open_clip's names. It is not all that was learned: "
    "the head, which gives the answers, is in the recipe, and the text tower stays as it was."
)
WEIGHTS_MAKE = "Prepare the weights"
WEIGHTS_DOWNLOAD = "Download the weights"
NO_BLOCK_MOVED = (
    "No block of the image tower moved, so its weights are those of the base model, and there is nothing to "
    "prepare. What was learned is a head, or nothing: take the recipe."
)
NOTHING_TO_TAKE = "There is no result yet. Press Adapt first."

CODE_HEADING = "The same in Python"
SHELL_HEADING = "And from a terminal"
AGAIN_COMMENT = "or learn it again, from a folder with one sub-folder of the same pictures per class"
STOPPED_COMMENT = "stopped early here: learned again it goes on to its end, and may answer otherwise"
PREPARE_COMMENT = "fetched, and its bank built, the first time"
BANK_COMMENT = "bank.safetensors is the bank that this page was started with"

SHARE_HEADING = "Share the settings"
SHARE_HELP = "The link carries the class names and settings. Pictures stay with you."
SHARE_LINK = "Link to this page with these settings"
COPY_LINK = "Copy the link"


def many_recipe_classes(name: str, count: int) -> str:
    """The refusal of a recipe with too many classes."""
    return (
        f"{name}: has {count} classes, but this page takes recipes of at most {LIMITS.classes}. Use it with "
        f"the Python library, which takes more."
    )
