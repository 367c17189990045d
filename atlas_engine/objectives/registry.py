"""The table of objectives: a new one is a row here. Knows nothing of the loop that runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.objectives.base import Objective
from atlas_engine.objectives.supervised import CrossEntropy

__all__ = ["OBJECTIVES", "ObjectiveRow", "find_objective"]


@dataclass(frozen=True)
class ObjectiveRow:
    """One objective as a person chooses it."""

    name: str
    help: str
    make: Callable[[], Objective]
    needs_labels: bool


_ROWS = (ObjectiveRow("supervised", "cross-entropy on labelled images", CrossEntropy, needs_labels=True),)

OBJECTIVES = MappingProxyType({row.name: row for row in _ROWS})


def find_objective(name: str) -> ObjectiveRow:
    """The row of that name, or an error that offers the nearest."""
    if name not in OBJECTIVES:
        raise ConfigError(unknown_name("objective", name, OBJECTIVES))
    return OBJECTIVES[name]
