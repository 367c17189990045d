"""The panel that looks inside a result: what a recipe is made of, and the bank."""

from __future__ import annotations

from app.text.language import say

LEAD = say(
    "The model borrowed from task vectors: what changed in the same model when it learned other data. Each "
    "is left out in turn here, and your images are answered again: those that change most come first."
)
NO_TASK_VECTORS = say(
    "This result borrows from no task vector: a small classifier on top of the model, or the model as it "
    "was, did best."
)
EFFECTS_HEADING = say("Which task vectors matter for your images")
EFFECTS_COLUMNS = (
    say("Task vector"),
    say("Answers that change without it"),
    say("How much they shift"),
    say("What it learned from"),
)
FAINT_SUMMARY = say("{count} task vectors that hardly matter")
NO_EFFECTS = say("Drop images to try, and the task vectors are ranked by what they do to the answers.")
EXPERT = say("For experts: coefficients, layers and lengths")
MAP_LABEL, MAP_HELP = say("The map shows"), say("The numbers of the recipe, or what they do to the weights.")
MAP_NAMES = {"mixed": say("how much is mixed in (λ)"), "moved": say("how far that moves the model")}
BY_LABEL, BY_HELP = say("Columns"), say("From the first layer to the last, or by what a block does.")
BY_NAMES = {"layer": say("layers"), "kind": say("kinds of block")}
KIND_LABEL, ANY_KIND = say("Blocks"), say("all kinds")
KIND_HELP, LAYER_HELP = say("Only blocks of one kind."), say("Which one the slider beside is for.")
TASK_VECTORS_HEADING = say("Which task vectors move the weights most")
TASK_VECTORS_COLUMNS = (
    say("Task vector"),
    say("Share of the change"),
    say("Trained on"),
    say("Its accuracy before → after"),
)
BANK_TAB = say("The task vectors")
BANK_HEADING = say("The whole bank: what each task vector was trained on, and how similar they are")
BANK_COLUMNS = (say("Task vector"), say("Trained on"), say("Its accuracy before → after"))
SCALE_HEADING = say("Turn a task vector down, or up")
SCALE_HELP = say("0 takes it out, 1 is as learned, 2 doubles it. The answers follow when you let go.")
LAYER_LABEL, LAYER_SLIDER = say("Layer"), say("Strength of that layer")
STRENGTH_HELP = say("Of what is chosen beside.")
TASK_VECTOR, NO_TASK_VECTOR, NO_LAYER = say("Task vector"), say("choose a task vector"), say("choose a layer")
OTHER_LABEL, OTHER_SLIDER = say("Another task vector"), say("Strength of that task vector")
OTHER_HELP = say("One that has no slider above.")
RESET = say("Back to as learned")
NO_SAMPLES = say("Drop images to try: then you see them change here.")


def gain_of_vectors(head: int, both: int, images: int) -> str:
    """What the task vectors added beside the head, in numbers of images.

    >>> gain_of_vectors(11, 14, 16)
    'A small classifier on top got 11 of 16 right; borrowing from task vectors as well, 14 of 16.'
    """
    return say(
        "A small classifier on top got {head} of {images} right; borrowing from task vectors as well, "
        "{both} of {images}.",
        head=head,
        both=both,
        images=images,
    )


def changed(count: int, images: int) -> str:
    """How many answers change without a task vector."""
    return say("{count} of {images}", count=count, images=images)


def faint(count: int) -> str:
    """What opens the task vectors that hardly matter."""
    return FAINT_SUMMARY.format(count=count)


def layer(number: int) -> str:
    """A layer in a list of them; what comes before the first is the stem."""
    return say("layer {number}", number=number) if number else say("stem")


def accuracy_change(before: float | None, after: float | None) -> str:
    """What training a task vector did on its own data."""
    return "–" if before is None or after is None else f"{before:.0%} → {after:.0%}"


def bank_lead(count: int) -> str:
    """What the bank is."""
    return say(
        "{count} task vectors. Each is what changed in the weights of the base model when it was trained on "
        "one set of images. Its accuracy is on images of that set which it was not trained on.",
        count=count,
    )


def zero_columns(count: int) -> str:
    """How many columns of a map are left out because nothing happens there."""
    if count == 1:
        return say("1 that stays as it is, is left out.")
    return say("{count} that stay as they are, are left out.", count=count)
