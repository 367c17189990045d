"""Template sets: the sentences that a class name is put into, by the data set that they were written for.

    find_templates("cars")                                      # the eight sentences of that set
    find_templates("a blurry photo of a {}.")                   # a sentence of one's own
    find_templates(["a photo of a {}.", "a photo of the {}."])  # several; or one text with a line each

To add a set, add a row. A sentence has {} where the class name goes. Three groups of rows:

    our own     plain, photo, kinds, textures, satellite
    CLIP's      those of Radford et al. (ICML 2021) for the 22 data sets that aTLAS (Zhang et al., NeurIPS
                2024) is measured on; Caltech-256 and CUB-200, which CLIP has none for, have those of aTLAS
    coop-…      the one sentence that CoOp (Zhou et al., IJCV 2022) has for each of its 11 data sets
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from atlas_engine.class_names import is_legible
from atlas_engine.errors import ConfigError, unknown_name

__all__ = ["TEMPLATES", "Templates", "find_templates", "list_templates"]

MAX_TEMPLATES = 200  # sentences that are averaged
MAX_TEMPLATE = 200  # characters of a sentence

Templates: TypeAlias = str | Sequence[str]
"""The name of a set or a sentence with {}, or several of them: in a list, or as the lines of one text."""


def _vary(patterns: Sequence[str], words: Sequence[str] = ("a", "the")) -> tuple[str, ...]:
    """Every pattern with the first word in place of its [], then every pattern with the next.

    >>> _vary(["a photo of [] {}."])
    ('a photo of a {}.', 'a photo of the {}.')
    """
    return tuple(pattern.replace("[]", word) for word in words for pattern in patterns)


# ---- sentences that several sets share

_PHOTO = ("a photo of a {}.",)
_PHOTOS = _vary(["a photo of [] {}."])
_NUMBER = ('a photo of the number: "{}".',)
_SMALL_PHOTOS = _vary(
    [
        "a photo of [] {}.",
        "a blurry photo of [] {}.",
        "a black and white photo of [] {}.",
        "a low contrast photo of [] {}.",
        "a high contrast photo of [] {}.",
        "a bad photo of [] {}.",
        "a good photo of [] {}.",
        "a photo of [] small {}.",
        "a photo of [] big {}.",
    ]
)
_RENDITIONS = _vary(
    [
        "a photo of [] {}.",
        "a painting of [] {}.",
        "[] plastic {}.",
        "a sculpture of [] {}.",
        "a sketch of [] {}.",
        "a tattoo of [] {}.",
        "[] toy {}.",
        "a rendition of [] {}.",
        "[] embroidered {}.",
        "[] cartoon {}.",
        "[] {} in a video game.",
        "[] plushie {}.",
        "[] origami {}.",
        "art of [] {}.",
        "graffiti of [] {}.",
        "a drawing of [] {}.",
        "a doodle of [] {}.",
    ]
)
_IMAGENET = (
    *_RENDITIONS,
    *_vary(
        [
            "a bad photo of [] {}.",
            "a good photo of [] {}.",
            "a bright photo of [] {}.",
            "a dark photo of [] {}.",
            "a blurry photo of [] {}.",
            "a black and white photo of [] {}.",
            "a close-up photo of [] {}.",
            "a cropped photo of [] {}.",
            "a pixelated photo of [] {}.",
            "a low resolution photo of [] {}.",
            "a jpeg corrupted photo of [] {}.",
            "a rendering of [] {}.",
            "a photo of [] clean {}.",
            "a photo of [] dirty {}.",
            "a photo of [] cool {}.",
            "a photo of [] nice {}.",
            "a photo of [] weird {}.",
            "a photo of [] small {}.",
            "a photo of [] large {}.",
            "a photo of [] hard to see {}.",
            "itap of [] {}.",
        ]
    ),
    "a photo of many {}.",
    "a photo of one {}.",
    "a photo of my {}.",
    "itap of my {}.",
)
_PERSONS = _vary([f"a {what} of [] person" for what in ("photo", "video", "example", "demonstration")])

# ---- the table

TEMPLATES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "plain": ("{}",),
        "photo": _PHOTO,
        "kinds": (
            "{}",
            "a photo of a {}.",
            "a picture showing {}.",
            "a close-up of {}.",
            "a drawing of a {}.",
            "{} seen from afar.",
        ),
        "textures": ("{}", "a {} texture.", "a surface that looks {}."),
        "satellite": ("{}", "a satellite image of {}.", "{} seen from above."),
        # CLIP's, for the data sets of aTLAS
        "cars": (
            *_PHOTOS,
            "a photo of my {}.",
            "i love my {}!",
            *_vary(["a photo of my [] {}."], ["dirty", "clean", "new", "old"]),
        ),
        "dtd": _vary([f"a photo of [] {{}} {what}." for what in ("texture", "pattern", "thing", "object")]),
        "eurosat": _vary(["a centered satellite photo of []{}."], ["", "a ", "the "]),
        "gtsrb": _vary(['a [] photo of a "{}" traffic sign.'], ["zoomed in", "centered", "close up"]),
        "mnist": _NUMBER,
        "resisc45": _vary(
            [
                f"{seen} {what} of []{{}}."
                for what in ("imagery", "photo", "view")
                for seen in ("satellite", "aerial")
            ],
            ["", "a ", "the "],
        ),
        "sun397": _PHOTOS,
        "svhn": _NUMBER,
        "cifar10": _SMALL_PHOTOS,
        "cifar100": _SMALL_PHOTOS,
        "imagenet": _IMAGENET,
        "stl10": _PHOTOS,
        "food101": ("a photo of {}, a type of food.",),
        "caltech101": _RENDITIONS,
        "caltech256": _RENDITIONS,
        "fgvc-aircraft": _vary(["a photo of [] {}, a type of aircraft."]),
        "flowers102": ("a photo of a {}, a type of flower.",),
        "oxford-pets": ("a photo of a {}, a type of pet.",),
        "cub200": ("a photo of a {}, a type of bird.",),
        "pascal-voc": _PHOTO,
        "country211": (
            "a photo i took in {}.",
            "a photo i took while visiting {}.",
            "a photo from my home country of {}.",
            "a photo from my visit to {}.",
            "a photo showing the country of {}.",
        ),
        "ucf101": _vary(
            [f"{person} []{{}}." for person in _PERSONS],
            ["", "using ", "doing ", "during ", "performing ", "practicing "],
        ),
        # CoOp's
        "coop-imagenet": _PHOTO,
        "coop-caltech101": _PHOTO,
        "coop-oxford-pets": ("a photo of a {}, a type of pet.",),
        "coop-cars": _PHOTO,
        "coop-flowers102": ("a photo of a {}, a type of flower.",),
        "coop-food101": ("a photo of {}, a type of food.",),
        "coop-fgvc-aircraft": ("a photo of a {}, a type of aircraft.",),
        "coop-sun397": _PHOTO,
        "coop-dtd": ("{} texture.",),
        "coop-eurosat": ("a centered satellite photo of {}.",),
        "coop-ucf101": ("a photo of a person doing {}.",),
    }
)


# ---- look-up


def find_templates(templates: Templates) -> tuple[str, ...]:
    """The sentences of the sets that are named, and the sentences that are written out, each once.

    Case and punctuation of a name do not matter. What is neither is a `ConfigError` that suggests the
    nearest name.

    >>> find_templates("CIFAR-10") == TEMPLATES["cifar10"]
    True
    >>> find_templates("a blurry {}")
    ('a blurry {}',)
    """
    text = templates if isinstance(templates, str) else "\n".join(map(str, templates))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise ConfigError(f"got no template. Give the name of a template set, or {_SENTENCE}.")
    found = tuple(dict.fromkeys(sentence for line in lines for sentence in _find(line)))
    if len(found) > MAX_TEMPLATES:
        raise ConfigError(f"got {len(found)} templates, but at most {MAX_TEMPLATES} are taken. Remove some.")
    return found


def list_templates() -> tuple[str, ...]:
    """The names of all template sets, in the order in which users are offered them."""
    return tuple(TEMPLATES)


_SENTENCE = "a sentence with {} where the class name goes"


def _find(line: str) -> tuple[str, ...]:
    """The sentences of the set that a line names, or the line itself if it has {}."""
    if len(line) > MAX_TEMPLATE or not is_legible(line):
        raise ConfigError(
            f"the template {line[:40]!r} is too long or has characters that cannot be shown. Write "
            f"{_SENTENCE}, of at most {MAX_TEMPLATE} characters."
        )
    if "{}" in line:
        return (line,)
    names = {_letters(name): name for name in TEMPLATES}
    if _letters(line) not in names:
        raise ConfigError(f"{unknown_name('template set', line, TEMPLATES)} Or write {_SENTENCE}.")
    return TEMPLATES[names[_letters(line)]]


def _letters(name: str) -> str:
    """Letters and digits alone, in lower case: all that tells two names apart."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())
