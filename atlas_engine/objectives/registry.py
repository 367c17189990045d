"""The table of objectives: a new one is a row here. Knows nothing of the loop that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.objectives.base import Objective
from atlas_engine.objectives.entropy import Entropy, InProportion
from atlas_engine.objectives.sar import SAR
from atlas_engine.objectives.simclr import SimCLR
from atlas_engine.objectives.supervised import CrossEntropy
from atlas_engine.objectives.ufm import UFM

__all__ = ["OBJECTIVES", "ObjectiveSpec", "find_objective"]


@dataclass(frozen=True)
class ObjectiveSpec:
    """One objective as a person chooses it."""

    name: str
    help: str
    make: Callable[..., Objective]  # its settings by name; none is needed but `proportions`
    needs_labels: bool = False
    needs_strong: bool = False  # a second view in every batch
    needs_trusted: bool = False  # pictures with the class they are taken for, a quarter of every batch
    needs_proportions: bool = False  # how often each class is there, (C)
    on_features: bool = False  # wants features where others want logits: a head that is the identity
    loop: Mapping[str, float] = field(default_factory=dict)  # what it asks of the loop's settings


_ROWS = (
    ObjectiveSpec("supervised", "cross-entropy on labelled images", CrossEntropy, needs_labels=True),
    ObjectiveSpec(
        "ufm",
        "sure answers on a weak view teach the strong one",
        UFM,
        needs_strong=True,
        needs_trusted=True,
    ),
    ObjectiveSpec("entropy", "sure answers that are not all the same", Entropy),
    ObjectiveSpec(
        "in-proportion",
        "sure answers, each class as often as it is found",
        InProportion,
        needs_proportions=True,
    ),
    ObjectiveSpec(
        "sar",
        "sure answers at a flat minimum, from reliable images",
        SAR,
        loop=MappingProxyType({"sharpness": 0.05, "collapse_below": 0.2}),
    ),
    ObjectiveSpec(
        "simclr",
        "two views of an image alike, those of two images not",
        SimCLR,
        needs_strong=True,
        on_features=True,
    ),
)

OBJECTIVES = MappingProxyType({row.name: row for row in _ROWS})


def find_objective(name: str) -> ObjectiveSpec:
    """The row of that name, or an error that offers the nearest."""
    if name not in OBJECTIVES:
        raise ConfigError(unknown_name("objective", name, OBJECTIVES))
    return OBJECTIVES[name]
