"""The table of heads. A new head is a row here.

HEADS["lpp"].fit_alone(support)                              # heads that are fitted to labels
find_head(name).rebuild(tensors, text, logit_scale=100.0)    # any head, from the tensors of a recipe
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.base import Head, LabelledFeatures, ZeroShot
from atlas_engine.heads.lpp import LPP
from atlas_engine.heads.probe import Probe
from atlas_engine.heads.tip import Tip

__all__ = ["HEADS", "UNLABELLED_HEADS", "FeatureLevel", "HeadSpec", "LabelledHeadSpec", "find_head"]


class FeatureLevel(Enum):
    """The features of the image tower that a head works on; each level adds to the level before it."""

    projected = "the embedding that is compared with text"
    penultimate = "and the features before that projection"
    multi_scale = "and the pooled maps of earlier layers"


@runtime_checkable
class RebuildHead(Protocol):
    """A function that makes a head from the tensors of a recipe."""

    def __call__(
        self, tensors: Mapping[str, Tensor], text: Float[Tensor, "C D"], *, logit_scale: float
    ) -> Head:
        """The head, or a `RecipeError`."""
        ...


FitHead = Callable[[LabelledFeatures], Head]


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """One row: what a recipe needs to know about the head that it names."""

    name: str
    """The head's name in recipes and tables."""
    help: str
    """A description, in one line."""
    paper: str
    """The paper that proposed it."""
    rebuild: RebuildHead
    """Makes the head from the tensors that a recipe stored."""
    feature_level: FeatureLevel = FeatureLevel.projected
    """The features that it works on."""


@dataclass(frozen=True, kw_only=True)
class LabelledHeadSpec(HeadSpec):
    """One row for a head that is fitted to labelled features, alone or together with the coefficients."""

    initialise: FitHead
    """Makes the head from which joint training with the coefficients starts."""
    fit_alone: FitHead
    """Fits the head on features that stay fixed."""
    extra_views: int = 0
    """Random views of each image that the head is fitted on, in addition to the image itself."""
    fit_after: bool = False
    """Learn the coefficients under zero-shot, then fit the head with `initialise`: no joint training."""


_LABELLED = (
    LabelledHeadSpec(
        name="none",
        help="the class names alone",
        paper="CLIP (Radford et al., ICML 2021)",
        initialise=ZeroShot.fit,
        fit_alone=ZeroShot.fit,
        rebuild=ZeroShot.from_tensors,
    ),
    LabelledHeadSpec(
        name="tip",
        help="Tip-Adapter: a cache of the images' features, no training",
        paper="Tip-Adapter (Zhang et al., ECCV 2022)",
        initialise=Tip.start,
        fit_alone=Tip.grid_search,
        rebuild=Tip.from_tensors,
    ),
    LabelledHeadSpec(
        name="tip-f",
        help="Tip-Adapter-F: the cache with its keys trained",
        paper="Tip-Adapter (Zhang et al., ECCV 2022)",
        initialise=Tip.start,
        fit_alone=Tip.fit,
        rebuild=Tip.from_tensors,
    ),
    LabelledHeadSpec(
        name="lpp",
        help="LP++: class means blended with the class names",
        paper="LP++ (Huang et al., CVPR 2024)",
        initialise=LPP.start,
        fit_alone=LPP.fit,
        rebuild=LPP.from_tensors,
    ),
    LabelledHeadSpec(
        name="linear-probe",
        help="logistic regression from zero, as the authors of CLIP measure features",
        paper="CLIP (Radford et al., ICML 2021), appendix A.3",
        initialise=Probe.start,
        fit_alone=Probe.fit,
        rebuild=Probe.from_tensors,
        feature_level=FeatureLevel.penultimate,
        extra_views=1,
    ),
    LabelledHeadSpec(
        name="text-probe",
        help="logistic regression that starts from the class names, on features of several layers",
        paper="after CLAP (Silva-Rodríguez et al., CVPR 2024)",
        initialise=Probe.fit_from_text,
        fit_alone=Probe.fit_from_text,
        rebuild=Probe.from_tensors,
        feature_level=FeatureLevel.multi_scale,
        extra_views=1,
        fit_after=True,
    ),
)

_UNLABELLED = (
    HeadSpec(
        name="anchored",
        help="class centres among images without labels, anchored to the class names",
        paper="after StatA (Zanella et al., CVPR 2025)",
        rebuild=Probe.from_tensors,
    ),
    HeadSpec(
        name="balanced",
        help="confident answers that use every class equally often, for images without labels",
        paper="after RIM (Krause, Perona and Gomes, NIPS 2010)",
        rebuild=Probe.from_tensors,
        feature_level=FeatureLevel.multi_scale,
    ),
    HeadSpec(
        name="proportioned",
        help="confident answers that use each class as often as it is found, for images without labels",
        paper="RIM with proportions by Saerens, Latinne and Decaestecker (Neural Computation, 2002)",
        rebuild=Probe.from_tensors,
        feature_level=FeatureLevel.multi_scale,
    ),
)

HEADS = MappingProxyType({spec.name: spec for spec in _LABELLED})
"""Heads that are fitted to labelled features."""

UNLABELLED_HEADS = MappingProxyType({spec.name: spec for spec in _UNLABELLED})
"""Heads that `heads.unlabelled` fits without labels: recipes hold them, few-shot methods do not."""


def find_head(name: str) -> HeadSpec:
    """The row of that name in either table, or a `ConfigError` that suggests the nearest name."""
    specs: dict[str, HeadSpec] = {**HEADS, **UNLABELLED_HEADS}
    if name not in specs:
        raise ConfigError(unknown_name("head", name, specs))
    return specs[name]
