"""The panel that looks inside a result: what a recipe is made of, and the bank.

On the page a task vector is called a donor.
"""

from __future__ import annotations

LEAD = (
    "The adapted model is the base model plus a mix of task vectors: what changed when it was trained on "
    "other data. Each such donor has a coefficient λ in every block of the network."
)
NO_TASK_VECTORS = (
    "This result draws on no donors: a head on the base model's features, or zero-shot itself, was kept."
)
MAP_LABEL, MAP_HELP = "The map shows", "The numbers of the recipe, or what they do to the weights."
MAP_NAMES = {"mixed": "how much is mixed in (λ)", "moved": "how far that moves the model"}
BY_LABEL, BY_HELP = "Columns", "From the first layer to the last, or by what a block does."
BY_NAMES = {"layer": "layers", "kind": "kinds of block"}
KIND_LABEL, ANY_KIND = "Blocks", "all kinds"
KIND_HELP, LAYER_HELP = "Only blocks of one kind.", "Which one the slider beside is for."
TASK_VECTORS_HEADING = "Which donors move the model most"
TASK_VECTORS_COLUMNS = ("Donor", "Share of the change", "Trained on", "Its accuracy before → after")
BANK_HEADING = "The whole bank: what each donor was trained on, and how alike they are"
BANK_COLUMNS = ("Donor", "Trained on", "Its accuracy before → after")
SCALE_HEADING = "Turn a donor or a layer down, or up"
SCALE_HELP = "0 takes it out, 1 is as learned, 2 doubles it. The predictions follow when you let go."
LAYER_LABEL, LAYER_SLIDER = "Layer", "Strength of that layer"
STRENGTH_HELP = "Of what is chosen beside."
TASK_VECTOR, NO_TASK_VECTOR, NO_LAYER = "Donor", "choose a donor", "choose a layer"
OTHER_LABEL, OTHER_SLIDER = "Another donor", "Strength of that donor"
OTHER_HELP = "One that has no slider above."
RESET = "Back to as learned"
NO_SAMPLES = "Add pictures to try it on and adapt again: then you see them change here."


def layer(number: int) -> str:
    """A layer in a list of them; what comes before the first is the stem."""
    return f"layer {number}" if number else "stem"


def accuracy_change(before: float | None, after: float | None) -> str:
    """What training a task vector did on its own data."""
    return "–" if before is None or after is None else f"{before:.0%} → {after:.0%}"


def bank_lead(count: int) -> str:
    """What the bank is."""
    return (
        f"{count} donors. Each is the same base model trained on one set of pictures; what changed in its "
        f"weights is the task vector. Its accuracy is on pictures of that set which it was not trained on."
    )


def zero_columns(count: int) -> str:
    """How many columns of a map are left out because nothing happens there."""
    return (
        "1 that stays as it is, is left out."
        if count == 1
        else f"{count} that stay as they are, are left out."
    )
