"""The tab where a visitor chooses the model that answers them."""

from __future__ import annotations

TAB = "Model"
LEAD = "Which model answers you. Other visitors keep theirs."
LABEL = "Model"
HELP = (
    "The bundled model is small and always here. CLIP is stronger: it is fetched once, and its bank is built "
    "once from public checkpoints, which takes a while. Any other name that open_clip knows will do, as in "
    "ViT-B-16/laion2b_s34b_b88k."
)
CHOOSE = "Use this model"
NOW_HEADING = "Answering you now"
CARD_ROWS = ("Model", "Image weights", "Picture size", "Bank of task vectors")
NO_BANK = "none on this machine: Ask works, Teach it needs one"
STOPPED = "Stopped. What was fetched stays on the disk; the model that answered you before still does."
FIXED = "On this host the model is chosen when the app starts, with ATLAS_MODEL."
OPENING = "Opening the model, and fetching it if it is not here yet …"
NAMES = {
    "bundled": "Bundled: small, offline",
    "ViT-B-32/openai": "CLIP ViT-B/32",
    "ViT-B-16/openai": "CLIP ViT-B/16: sharper eyes, slower",
    "ViT-L-14/openai": "CLIP ViT-L/14: strongest, needs much memory",
}


def fetching(nbytes: int) -> str:
    """How much the hub is about to send.

    >>> fetching(7_650_000_000)
    'Fetching 7.65 GB from the model hub, once …'
    """
    return f"Fetching {nbytes / 1e9:.2f} GB from the model hub, once …"


def building(index: int, of: int, vector: str) -> str:
    """How far the bank is.

    >>> building(2, 20, "resisc45")
    'Building its bank: 2 of 20 vectors done, now resisc45 …'
    """
    now = f", now {vector}" if vector else ""
    return f"Building its bank: {index} of {of} vectors done{now} …"


def ready(name: str) -> str:
    """The closing line of a choice."""
    return f"{name} answers you from now on."


def closed(name: str) -> str:
    """Why a chosen model does not answer any more."""
    return f"{name} was put away to make room for models that others chose. Choose it again in the Model tab."


def not_offered(name: str) -> str:
    """The refusal of a name that only whoever starts the server may give."""
    return (
        f"'{name[:80]}' cannot be chosen on the page. Take one from the list or a name that open_clip knows, "
        "as in ViT-B-16/laion2b_s34b_b88k; files and hub ids are for ATLAS_MODEL, when the app starts."
    )


def made_with(name: str, now: str) -> str:
    """The note for a link that was made with another model than the one that answers now."""
    return (
        f"This link was made with the model {name}, and {now} answers you now. For the same results choose "
        f"it in the {TAB} tab first."
    )


def still_answering(name: str, sentence: str) -> str:
    """A refusal, and who goes on answering."""
    return f"{sentence} The model {name} goes on answering you."


def weights(millions: float) -> str:
    """How large an image tower is."""
    return f"{millions:.1f} million"


def bank(count: int, storage: str) -> str:
    """What a bank holds."""
    return f"{count} vectors, stored as {storage}"
