"""The advanced settings of a run, and the link that carries them. Knows nothing of Gradio or pictures.

A link holds class names and settings, never a picture:  ?class=otter&class=seal&steps=80. Names for photos
without labels are called otherwise, so that each tab knows its own:  ?word=otter&word=seal. A model that is
not the page's own is named too, for whoever opens the link:  ?class=otter&model=ViT-B-32/openai
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar
from urllib.parse import urlencode

import atlas_engine as atlas
from app import text
from app.limits import LIMITS

__all__ = [
    "EVERY_NAME",
    "METHODS",
    "OBJECTIVES",
    "Choices",
    "RollChoices",
    "from_query",
    "model_from_query",
    "roll_from_query",
    "to_query",
]

METHODS = ("auto", "atlas+text-probe", "atlas", "text-probe")
"""The methods that the page offers; the first checks itself."""

OBJECTIVES = (
    "auto",
    "entropy+balanced",
    "entropy+proportioned",
    "balanced",
    "proportioned",
    "anchored",
    "ufm",
    "entropy",
    "sar",
    "simclr",
)
"""The same for photos without labels."""

EVERY_NAME = "entropy+balanced"
"""The one for photos of which the visitor knows that they show every name."""

MOST_LETTERS = 100  # of a class name in a link
MODEL = re.compile(r"[\w.+@/-]{1,160}")
LEAST_LR = 1e-6  # that a link may tell


@dataclass(frozen=True)
class Choices:
    """How to learn, each with the engine's own default."""

    KEY: ClassVar[str] = "class"  # of a class name in a link

    method: str = METHODS[0]
    steps: int = atlas.FewShotConfig().steps
    lr: float = atlas.FewShotConfig().lr
    seed: int = 0

    @property
    def config(self) -> atlas.FewShotConfig:
        """As the engine takes them; it refuses what is out of range. A rate of 0 it would take."""
        if self.lr == 0:
            raise atlas.AtlasError(text.NO_LEARNING)
        return atlas.FewShotConfig(steps=min(int(self.steps), LIMITS.steps), lr=float(self.lr))


@dataclass(frozen=True)
class RollChoices:
    """How to adapt to photos without labels."""

    KEY: ClassVar[str] = "word"

    objective: str = OBJECTIVES[0]
    seed: int = 0


def to_query(classes: Iterable[str], choices: Choices | RollChoices, *, model: str = "") -> str:
    """The query of a link; settings that have their default are left out, and so is the page's own model.

    >>> to_query(["otter", "sea lion"], Choices(seed=3))
    '?class=otter&class=sea+lion&seed=3'
    """
    told = [(choices.KEY, name) for name in classes]
    told += [
        (one.name, str(getattr(choices, one.name)))
        for one in fields(choices)
        if getattr(choices, one.name) != one.default
    ]
    return f"?{urlencode([*told, *([('model', model)] if model else [])])}"


def from_query(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], Choices]:
    """Class names and settings from a link that anybody may have written; what makes no sense is dropped."""
    told = list(pairs)
    given = dict(told)
    steps = atlas.FewShotConfig().steps
    return _names(told, Choices.KEY, most=LIMITS.rows), Choices(
        method=given["method"] if given.get("method") in METHODS else METHODS[0],
        steps=int(_number(given.get("steps"), steps, low=0, high=LIMITS.steps)),
        lr=_number(given.get("lr"), atlas.FewShotConfig().lr, low=LEAST_LR, high=10.0),
        seed=_seed(given),
    )


def roll_from_query(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], RollChoices]:
    """The same for photos without labels."""
    told = list(pairs)
    given = dict(told)
    objective = given["objective"] if given.get("objective") in OBJECTIVES else OBJECTIVES[0]
    return _names(told, RollChoices.KEY, most=LIMITS.classes), RollChoices(objective, _seed(given))


def model_from_query(pairs: Iterable[tuple[str, str]]) -> str:
    """The model that a link was made with; nothing where it is the page's own, or no name of a model."""
    named = dict(pairs).get("model", "")
    return named if MODEL.fullmatch(named) else ""


def _names(told: Iterable[tuple[str, str]], key: str, *, most: int) -> tuple[str, ...]:
    return tuple(value[:MOST_LETTERS] for name, value in told if name == key and value.strip())[:most]


def _seed(given: Mapping[str, str]) -> int:
    return int(_number(given.get("seed"), 0, low=0, high=2**31 - 1))


def _number(said: str | None, default: float, *, low: float, high: float) -> float:
    try:
        value = float(said or "")
    except ValueError:
        return default
    return value if low <= value <= high else default
