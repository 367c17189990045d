"""Learning rates over the steps of a run. Knows nothing of what is learned."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType

__all__ = ["SCHEDULES", "Schedule", "constant", "cosine"]

Schedule = Callable[[int, int], float]
"""(index, of) to the factor on the learning rate, for index in 0 … of − 1."""


def cosine(index: int, of: int) -> float:
    """½ (1 + cos(π index / of)): 1 at the first step, no warm-up, near 0 at the last.

    >>> [round(cosine(i, 4), 3) for i in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    return 0.5 * (1.0 + math.cos(math.pi * index / of))


def constant(index: int, of: int) -> float:  # noqa: ARG001 - one signature for the table
    """1 at every step."""
    return 1.0


SCHEDULES: MappingProxyType[str, Schedule] = MappingProxyType({"cosine": cosine, "constant": constant})
