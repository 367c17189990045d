"""The chip that names the model which answers a visitor, and the panel where they choose another."""

from __future__ import annotations

from app.text.language import say

LEAD = say("Which model answers you. Other visitors keep theirs.")
LABEL = say("Model")
HELP = say(
    "The bundled model is small and always here. CLIP is stronger: it is fetched once, and its bank is "
    "built once from public checkpoints, which takes a while. Any other name that open_clip knows will do, "
    "as in ViT-B-16/laion2b_s34b_b88k."
)
CHOOSE = say("Use this model")
NOW_HEADING = say("Answering you now")
CARD_ROWS = (say("Model"), say("Image weights"), say("Image size"), say("Bank of task vectors"))
RESIDENCY = say("Where its vectors are")
NO_BANK = say("none on this machine: it answers by class names, and cannot be taught")
STOPPED = say("Stopped. What was fetched stays on the disk; the model that answered you before still does.")
FIXED = say("On this host the model is chosen when the app starts, with ATLAS_MODEL.")
OPENING = say("Opening the model, and fetching it if it is not here yet …")
NAMES = {
    "bundled": say("Bundled: small, offline"),
    "ViT-B-32/openai": "CLIP ViT-B/32",
    "ViT-B-16/openai": say("CLIP ViT-B/16: sharper eyes, slower"),
    "ViT-L-14/openai": say("CLIP ViT-L/14: strongest, needs much memory"),
}


def chip(name: str) -> str:
    """What the chip in the header says.

    >>> chip("bundled")
    'Model: bundled'
    """
    return say("Model: {name}", name=name)


def fetching(nbytes: int) -> str:
    """How much the hub is about to send.

    >>> fetching(7_650_000_000)
    'Fetching 7.65 GB from the model hub, once …'
    """
    return say("Fetching {size} GB from the model hub, once …", size=f"{nbytes / 1e9:.2f}")


def building(index: int, of: int, vector: str) -> str:
    """How far the bank is.

    >>> building(2, 20, "resisc45")
    'Building its bank: 2 of 20 vectors done, now resisc45 …'
    """
    if vector:
        return say(
            "Building its bank: {index} of {of} vectors done, now {vector} …",
            index=index,
            of=of,
            vector=vector,
        )
    return say("Building its bank: {index} of {of} vectors done …", index=index, of=of)


def ready(name: str) -> str:
    """The closing line of a choice."""
    return say("{name} answers you from now on.", name=name)


def closed(name: str) -> str:
    """Why a chosen model does not answer any more."""
    return say(
        "{name} was put away to make room for models that others chose. Choose it again: press the model's "
        "name at the top.",
        name=name,
    )


def not_offered(name: str) -> str:
    """The refusal of a name that only whoever starts the server may give."""
    return say(
        "'{name}' cannot be chosen on the page. Take one from the list or a name that open_clip knows, as "
        "in ViT-B-16/laion2b_s34b_b88k; files and hub ids are for ATLAS_MODEL, when the app starts.",
        name=name[:80],
    )


def made_with(name: str, now: str) -> str:
    """The note for a link that was made with another model than the one that answers now."""
    return say(
        "This link was made with the model {name}, and {now} answers you now. For the same results choose "
        "it first: press the model's name at the top.",
        name=name,
        now=now,
    )


def still_answering(name: str, sentence: str) -> str:
    """A refusal, and who goes on answering."""
    return say("{sentence} The model {name} goes on answering you.", sentence=sentence, name=name)


def weights(millions: float) -> str:
    """How large an image tower is."""
    return say("{millions} million", millions=f"{millions:.1f}")


def bank(count: int, storage: str) -> str:
    """What a bank holds."""
    return say("{count} vectors, stored as {storage}", count=count, storage=storage)


def resident(count: int, nbytes: int) -> str:
    """Where the vectors of a bank in memory are.

    >>> resident(19, 41_000_000)
    'all 19 in memory (41 MB)'
    """
    return say("all {count} in memory ({size} MB)", count=count, size=f"{nbytes / 1e6:.0f}")


def residency(*, on_device: int, in_memory: int, on_disk: int, nbytes: int) -> str:
    """Where the vectors of a bank on disk are; `nbytes` of them are in memory.

    >>> residency(on_device=8, in_memory=56, on_disk=436, nbytes=138_000_000)
    '8 in use now, 56 more in memory (138 MB), 436 on disk until they are chosen'
    """
    return say(
        "{on_device} in use now, {in_memory} more in memory ({size} MB), {on_disk} on disk until they are "
        "chosen",
        on_device=on_device,
        in_memory=in_memory,
        on_disk=on_disk,
        size=f"{nbytes / 1e6:.0f}",
    )
