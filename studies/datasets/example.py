"""A labelled picture on its way from a package to a folder. Knows nothing of packages or folders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["SetExample", "capped"]


@dataclass(frozen=True, eq=False)
class SetExample:
    """A picture (a file's bytes, or pixels) and its class.

    Pictures of one class that share a `track` show one and the same thing, and belong in the same split.
    """

    label: str
    track: str
    image: bytes | NDArray[np.uint8] = field(repr=False)


def capped(examples: Iterable[SetExample], *, per_class: int, least: int) -> dict[str, list[SetExample]]:
    """The examples by class, at most `per_class` of each, spread evenly over what there is.

    Where that would leave a set of few classes with less than `least` pictures, a class may have more: of 600
    in each of 2 classes, `per_class=150, least=800` takes 400.
    """
    by_class: dict[str, list[SetExample]] = {}
    for example in examples:
        by_class.setdefault(example.label, []).append(example)
    most = max(per_class, -(-least // max(len(by_class), 1)))
    return {label: _spread(members, most) for label, members in by_class.items()}


def _spread(members: list[SetExample], most: int) -> list[SetExample]:
    if len(members) <= most:
        return members
    return [members[index * len(members) // most] for index in range(most)]
