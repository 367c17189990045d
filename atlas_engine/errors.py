"""Every error that this library raises on purpose.

    AtlasError
    ├── ConfigError       a setting is out of range, or a name is not known
    ├── ImageError        a file or array is not an image that we accept
    ├── StoppedError      reading was stopped, because its caller asked for it
    ├── SupportError      a set of labelled images, or of class names, cannot be used as it is
    ├── ModelError        a model cannot be opened
    │   └── HubError      … or stored, because the hub cannot be reached or refuses
    ├── BankError         a task vector or a bank file is damaged, or made for another base model
    ├── RecipeError       a recipe is damaged, or made for another model or bank
    ├── ExportError       a model cannot be exported, or not in the format asked for
    ├── EvalError         an evaluation or a benchmark cannot be carried out
    └── ExecutorError     a task cannot be carried out where it was sent to

Each message is a sentence for the user: what was given, what is needed, and what to do.

    try:
        engine.predict(images, classes)
    except atlas.AtlasError as error:
        print(error)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "AtlasError",
    "BankError",
    "ConfigError",
    "EvalError",
    "ExecutorError",
    "ExportError",
    "HubError",
    "ImageError",
    "ModelError",
    "RecipeError",
    "StoppedError",
    "SupportError",
    "unknown_name",
]

MOST_SHOWN = 80  # characters of a name that is not known


class AtlasError(Exception):
    """Base class of all errors that the library raises on purpose."""


class ConfigError(AtlasError):
    """A setting is out of range, or a name is not known."""


class ImageError(AtlasError):
    """A file or array is not an image that we accept."""


class StoppedError(AtlasError):
    """Reading was stopped, because its caller asked for it."""


class SupportError(AtlasError):
    """A set of labelled images, or of class names, cannot be used as it is."""


class ModelError(AtlasError):
    """A model cannot be opened."""


class HubError(ModelError):
    """A model, recipe, bank or data set cannot be read or stored: the hub cannot be reached, or refuses."""


class BankError(AtlasError):
    """A task vector or a bank file is damaged, or made for another base model."""


class RecipeError(AtlasError):
    """A recipe is damaged, or made for another model or bank."""


class ExportError(AtlasError):
    """A model cannot be exported, or not in the format asked for."""


class EvalError(AtlasError):
    """An evaluation or a benchmark cannot be carried out."""


class ExecutorError(AtlasError):
    """A task cannot be carried out where it was sent to: a process, or a Ray cluster."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """An error sentence for an unknown name that suggests the nearest known name.

    >>> unknown_name("template set", "fotos", ["photos", "plain"])
    "template set 'fotos' is not known. Did you mean 'photos'? Known: photos, plain."
    """
    names = sorted(known)
    name = "".join(
        char if char.isprintable() else "?" for char in name[:MOST_SHOWN]
    )  # a stranger may give it
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"{kind} '{name}' is not known.{hint} Known: {', '.join(names)}."
