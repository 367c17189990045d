"""Every error that this library raises on purpose.

    AtlasError
    ├── ConfigError       a setting is out of range, or a name is not known
    ├── ImageError        a file or array is not an image that we accept
    ├── SupportError      a set of labelled images, or of class names, cannot be used as it is
    ├── ModelError        a model cannot be opened
    │   └── HubError      … because the hub that holds it cannot be reached
    ├── BankError         a task vector or a bank file is damaged, or made for another base model
    ├── RecipeError       a recipe is damaged, or made for another model or bank
    ├── CacheError        the cache folder holds something that we did not write
    └── EvalError         an evaluation or a benchmark cannot be carried out

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
    "CacheError",
    "ConfigError",
    "EvalError",
    "HubError",
    "ImageError",
    "ModelError",
    "RecipeError",
    "SupportError",
    "unknown_name",
]


class AtlasError(Exception):
    """Base class of all errors that the library raises on purpose."""


class ConfigError(AtlasError):
    """A setting is out of range, or a name is not known."""


class ImageError(AtlasError):
    """A file or array is not an image that we accept."""


class SupportError(AtlasError):
    """A set of labelled images, or of class names, cannot be used as it is."""


class ModelError(AtlasError):
    """A model cannot be opened."""


class HubError(ModelError):
    """A model cannot be opened because the hub that holds it cannot be reached."""


class BankError(AtlasError):
    """A task vector or a bank file is damaged, or made for another base model."""


class RecipeError(AtlasError):
    """A recipe is damaged, or made for another model or bank."""


class CacheError(AtlasError):
    """The cache folder holds something that we did not write."""


class EvalError(AtlasError):
    """An evaluation or a benchmark cannot be carried out."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """An error sentence for an unknown name that suggests the nearest known name.

    >>> unknown_name("template set", "fotos", ["photos", "plain"])
    "template set 'fotos' is not known. Did you mean 'photos'? Known: photos, plain."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"{kind} '{name}' is not known.{hint} Known: {', '.join(names)}."
