"""The table of objectives. A new objective is a row here.

find_objective("ufm").make(threshold=0.8)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.objectives.base import Objective
from atlas_engine.objectives.entropy import Entropy, ProportionalEntropy
from atlas_engine.objectives.sar import SAR
from atlas_engine.objectives.simclr import SimCLR
from atlas_engine.objectives.supervised import CrossEntropy
from atlas_engine.objectives.ufm import UFM

__all__ = ["OBJECTIVES", "ObjectiveSpec", "find_objective"]


@dataclass(frozen=True, kw_only=True)
class ObjectiveSpec:
    """One objective: how it is made, and what it needs."""

    name: str
    """Its name in methods and tables."""
    help: str
    """A description, in one line."""
    paper: str
    """The paper that proposed it."""
    make: Callable[..., Objective]
    """Makes the objective from its settings by name; all but `proportions` have defaults."""
    needs_labels: bool = False
    """Every batch has labels."""
    needs_strong: bool = False
    """Every batch has a second, strong view."""
    needs_trusted: bool = False
    """Up to a quarter of every batch are trusted images, labelled with the class they were predicted as."""
    needs_proportions: bool = False
    """It is made with the proportions (C) of the classes."""
    on_features: bool = False
    """It works on features, not class logits: the head is the identity."""
    loop_defaults: Mapping[str, float] = field(default_factory=dict)
    """Settings of the loop that have another default for this objective."""


_ROWS = (
    ObjectiveSpec(
        name="supervised",
        help="cross-entropy on labelled images",
        paper="aTLAS (Zhang et al., NeurIPS 2024)",
        make=CrossEntropy,
        needs_labels=True,
    ),
    ObjectiveSpec(
        name="ufm",
        help="confident answers on a weak view are the targets of the strong view",
        paper="aTLAS (Zhang et al., NeurIPS 2024), after FixMatch (Sohn et al., NeurIPS 2020)",
        make=UFM,
        needs_strong=True,
        needs_trusted=True,
    ),
    ObjectiveSpec(
        name="entropy",
        help="confident answers that are not all the same",
        paper="Tent (Wang et al., ICLR 2021) with the diversity of SHOT (Liang et al., ICML 2020)",
        make=Entropy,
    ),
    ObjectiveSpec(
        name="in-proportion",
        help="confident answers, each class as often as it is found",
        paper="RIM (Krause, Perona and Gomes, NIPS 2010) with estimated proportions",
        make=ProportionalEntropy,
        needs_proportions=True,
    ),
    ObjectiveSpec(
        name="sar",
        help="confident answers at a flat minimum, from reliable images",
        paper="SAR (Niu et al., ICLR 2023)",
        make=SAR,
        loop_defaults=MappingProxyType({"sharpness": 0.05, "collapse_below": 0.2}),
    ),
    ObjectiveSpec(
        name="simclr",
        help="similar features for two views of an image, different ones for two images",
        paper="SimCLR (Chen et al., ICML 2020)",
        make=SimCLR,
        needs_strong=True,
        on_features=True,
    ),
)

OBJECTIVES = MappingProxyType({spec.name: spec for spec in _ROWS})


def find_objective(name: str) -> ObjectiveSpec:
    """The row of that name, or a `ConfigError` that suggests the nearest name."""
    if name not in OBJECTIVES:
        raise ConfigError(unknown_name("objective", name, OBJECTIVES))
    return OBJECTIVES[name]
