"""The advanced settings of a lesson, and the link that carries them. Knows nothing of Gradio or pictures.

A link holds class names and settings, never a picture:  ?class=otter&class=seal&steps=80
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from urllib.parse import urlencode

import atlas_engine as atlas
from app.limits import LIMITS

__all__ = ["METHODS", "Choices", "from_query", "to_query"]

METHODS = ("auto", "atlas+text-probe", "atlas", "text-probe")
"""The methods that the page offers; the first checks itself."""

MOST_LETTERS = 100  # of a class name in a link


@dataclass(frozen=True)
class Choices:
    """How to learn, each with the engine's own default."""

    method: str = METHODS[0]
    steps: int = atlas.FewShotConfig().steps
    lr: float = atlas.FewShotConfig().lr
    seed: int = 0

    @property
    def config(self) -> atlas.FewShotConfig:
        """As the engine takes them; it refuses what is out of range."""
        return atlas.FewShotConfig(steps=min(int(self.steps), LIMITS.steps), lr=float(self.lr))


def to_query(classes: Iterable[str], choices: Choices) -> str:
    """The query of a link; settings that have their default are left out.

    >>> to_query(["otter", "sea lion"], Choices(seed=3))
    '?class=otter&class=sea+lion&seed=3'
    """
    told = [("class", name) for name in classes]
    told += [
        (one.name, str(getattr(choices, one.name)))
        for one in fields(Choices)
        if getattr(choices, one.name) != one.default
    ]
    return f"?{urlencode(told)}"


def from_query(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], Choices]:
    """Class names and settings from a link that anybody may have written; what makes no sense is dropped."""
    told = list(pairs)
    names = tuple(value[:MOST_LETTERS] for key, value in told if key == "class" and value.strip())
    given = dict(told)
    steps = atlas.FewShotConfig().steps
    return names[: LIMITS.rows], Choices(
        method=given["method"] if given.get("method") in METHODS else METHODS[0],
        steps=int(_number(given.get("steps"), steps, low=0, high=LIMITS.steps)),
        lr=_number(given.get("lr"), atlas.FewShotConfig().lr, low=0.0, high=10.0),
        seed=int(_number(given.get("seed"), 0, low=0, high=2**31 - 1)),
    )


def _number(said: str | None, default: float, *, low: float, high: float) -> float:
    try:
        value = float(said or "")
    except ValueError:
        return default
    return value if low <= value <= high else default
