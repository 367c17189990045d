"""The table of heads: a new one is a row here. Knows nothing of who trains them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from torch import Tensor

from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads import unlabelled
from atlas_engine.heads.base import Head, LabelledFeatures, ZeroShot
from atlas_engine.heads.cross_validation import MakeHead, MakeHeads, one_by_one
from atlas_engine.heads.lpp import LPP
from atlas_engine.heads.probe import Probe
from atlas_engine.heads.tip import Tip

__all__ = ["HEADS", "WITHOUT_LABELS", "FeatureLevel", "HeadSpec", "find_head"]


class Rebuild(Protocol):
    """What makes a head from the tensors it has saved."""

    def __call__(self, tensors: Mapping[str, Tensor], text: Tensor, *, logit_scale: float) -> Head:
        """The head, or a `RecipeError`."""
        ...


class FeatureLevel(Enum):
    """Which features a head wants: each has those before it as well."""

    projected = "what the tower says in the space of sentences"
    penultimate = "what it saw before it put it into words"
    multi_scale = "what it saw on the way there"


@dataclass(frozen=True)
class HeadSpec:
    """One head as a person chooses it."""

    name: str
    help: str
    start: Callable[[LabelledFeatures], Head]  # where joint training begins
    alone: MakeHead  # made on zero-shot features, ready to use
    folds: MakeHeads  # the same for many labellings, for `estimate`
    rebuild: Rebuild
    feature_level: FeatureLevel = FeatureLevel.projected
    views: int = 0  # random views of each picture that it is made from, beside the picture
    fit_after: bool = False  # it is fitted to coefficients that the class names taught, not learned with them


_ROWS = (
    HeadSpec(
        "none",
        "the class names alone",
        ZeroShot.fitted,
        ZeroShot.fitted,
        one_by_one(ZeroShot.fitted),
        ZeroShot.from_tensors,
    ),
    HeadSpec(
        "tip",
        "Tip-Adapter: a cache of the images' features, no training",
        Tip.start,
        Tip.searched,
        one_by_one(Tip.searched),
        Tip.from_tensors,
    ),
    HeadSpec(
        "tip-f",
        "Tip-Adapter-F: the cache with its keys trained",
        Tip.start,
        Tip.fitted,
        one_by_one(Tip.fitted),
        Tip.from_tensors,
    ),
    HeadSpec(
        "lpp",
        "LP++: class means blended with the class names",
        LPP.start,
        LPP.fitted,
        LPP.folds,
        LPP.from_tensors,
    ),
    HeadSpec(
        "linear-probe",
        "logistic regression on what was said and seen, as CLIP's authors measure features",
        Probe.start,
        Probe.fitted,
        one_by_one(Probe.fitted),
        Probe.from_tensors,
        feature_level=FeatureLevel.penultimate,
        views=1,
    ),
    HeadSpec(
        "text-probe",
        "logistic regression that starts from the class names, on what was said and seen, early and late",
        Probe.from_text,
        Probe.from_text,
        one_by_one(Probe.from_text),
        Probe.from_tensors,
        feature_level=FeatureLevel.multi_scale,
        views=1,
        fit_after=True,
    ),
)

HEADS = MappingProxyType({row.name: row for row in _ROWS})

_WITHOUT_LABELS = (
    HeadSpec(
        "anchored",
        "class centres found among pictures without labels",
        unlabelled.anchored_from_evidence,
        unlabelled.anchored_from_evidence,
        one_by_one(unlabelled.anchored_from_evidence),
        Probe.from_tensors,
    ),
    HeadSpec(
        "balanced",
        "sure answers that use every class, found among pictures without labels",
        unlabelled.balanced_from_evidence,
        unlabelled.balanced_from_evidence,
        one_by_one(unlabelled.balanced_from_evidence),
        Probe.from_tensors,
        feature_level=FeatureLevel.multi_scale,
    ),
    HeadSpec(
        "proportioned",
        "sure answers, as many of a class as class centres count, found among pictures without labels",
        unlabelled.balanced_from_evidence,
        unlabelled.balanced_from_evidence,
        one_by_one(unlabelled.balanced_from_evidence),
        Probe.from_tensors,
        feature_level=FeatureLevel.multi_scale,
    ),
)
WITHOUT_LABELS = MappingProxyType({row.name: row for row in _WITHOUT_LABELS})
"""Heads that recipes keep, but that no labelled evidence is needed for: not among those to choose from."""


def find_head(name: str) -> HeadSpec:
    """The row of that name, or an error that offers the nearest."""
    rows = {**HEADS, **WITHOUT_LABELS}
    if name not in rows:
        raise ConfigError(unknown_name("head", name, rows))
    return rows[name]
