"""What every adapter head is made of, and what it must do. Knows nothing of towers, banks or optimisers.

A head is made from evidence (labelled features and the class names' embeddings), turns features into logits
by a pure function, and is rebuilt from its tensors alone:

    head = LPP.fitted(Evidence(features, labels, text, logit_scale=100.0))
    logits = head.logits(features)                                              # (B D) -> (B C)
    same = LPP.from_tensors(head.tensors, text, logit_scale=100.0)

Rows labelled `UNUSED` are there but not learned from. A fold is the evidence with its held-out rows unused,
so the tensors of all folds have one shape and can be learned side by side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.errors import RecipeError, SupportError

__all__ = [
    "UNUSED",
    "Head",
    "LabelledFeatures",
    "TensorRate",
    "ZeroShot",
    "checked_tensors",
    "class_balanced_weights",
    "one_hot",
    "text_logits",
]

UNUSED = -1
LENGTH_TOLERANCE = 1e-2  # of a unit vector that went through half precision


@dataclass(frozen=True)
class TensorRate:
    """How a tensor is learned beside the coefficients, relative to the loop's own settings."""

    lr_scale: float = 1.0
    weight_decay: float | None = 0.0
    normalise: bool | None = False


class Head(Protocol):
    """Features to logits, with tensors that may be learned."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """All that a recipe keeps of the head, in float32."""
        ...

    @property
    def rates(self) -> Mapping[str, TensorRate]:
        """Those of the tensors that may be learned jointly with a tower."""
        ...

    def logits(self, features: Tensor, learned: Mapping[str, Tensor] | None = None) -> Tensor:
        """(B D) of length 1 -> (B C), differentiable in the features and in ``learned``, which goes first."""
        ...

    def at(self, learned: Mapping[str, Tensor]) -> Head:
        """The same head with other values of what is learned."""
        ...


@dataclass(frozen=True, eq=False)
class LabelledFeatures:
    """What a head is made from. Everything is copied, moved to the features' device and frozen."""

    features: Tensor  # (N D), rows of length 1
    labels: Tensor  # (N), class numbers, or UNUSED
    text: Tensor  # (C D), rows of length 1
    logit_scale: float = field(kw_only=True)

    def __post_init__(self) -> None:
        device = self.features.device
        object.__setattr__(self, "features", self.features.detach().float().clone())
        object.__setattr__(self, "labels", self.labels.detach().to(device, torch.long, copy=True))
        object.__setattr__(self, "text", self.text.detach().to(device, torch.float32, copy=True))
        _check(self)

    def without(self, rows: Tensor) -> LabelledFeatures:
        """The evidence with some rows (positions, or a mask) held out."""
        labels = self.labels.clone()
        labels[rows.to(labels.device)] = UNUSED
        return self.labelled(labels)

    def labelled(self, labels: Tensor) -> LabelledFeatures:
        """The same features with other labels (N)."""
        return dataclasses.replace(self, labels=labels)

    @property
    def used(self) -> Tensor:
        """(N): which rows are learned from."""
        return self.labels != UNUSED

    @property
    def one_hot(self) -> Tensor:
        """(N C); an unused row is all zero."""
        return one_hot(self.labels, len(self.text))

    @property
    def counts(self) -> Tensor:
        """(C): used rows of each class."""
        return self.one_hot.sum(dim=0)

    @property
    def weights(self) -> Tensor:
        """(N): what each row counts; see `class_balanced_weights`."""
        return class_balanced_weights(self.one_hot)

    def __repr__(self) -> str:
        size = f"{int(self.used.sum())} of {len(self.labels)} images, {len(self.text)} classes"
        return f"Evidence({size}, on {self.features.device})"


@dataclass(frozen=True, eq=False)
class ZeroShot:
    """The class names alone: the head without evidence, for tables that have a row for it."""

    text: Tensor  # (C D)
    logit_scale: float

    @classmethod
    def fitted(cls, evidence: LabelledFeatures) -> ZeroShot:
        """The evidence's class names."""
        return cls(evidence.text, evidence.logit_scale)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], text: Tensor, *, logit_scale: float) -> ZeroShot:
        """Rebuild it; there is nothing to rebuild it from."""
        checked_tensors(tensors, {})
        return cls(text, logit_scale)

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """None."""
        return {}

    @property
    def rates(self) -> Mapping[str, TensorRate]:
        """None."""
        return {}

    def logits(self, features: Tensor, learned: Mapping[str, Tensor] | None = None) -> Tensor:  # noqa: ARG002
        """logit_scale · f tᵀ."""
        return text_logits(features, self.text, logit_scale=self.logit_scale)

    def at(self, learned: Mapping[str, Tensor]) -> ZeroShot:
        """Itself."""
        checked_tensors(learned, {})
        return self


def text_logits(features: Tensor, text: Tensor, *, logit_scale: float) -> Tensor:
    """logit_scale · ⟨feature, class⟩, in float32: zero-shot."""
    return logit_scale * features.float() @ text.T  # (B D) @ (D C) -> (B C)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """(…) -> (… C); an unused label is all zero."""
    return F.one_hot(labels.clamp_min(0), classes).float() * (labels != UNUSED).unsqueeze(-1)


def class_balanced_weights(hot: Tensor) -> Tensor:
    """(… N C) -> (… N), summing to 1: every class that has images counts the same, however many it has.

    A person with 16 photos of one thing and 2 of another has not said that the first is seen more often.
    """
    counts = hot.sum(dim=-2, keepdim=True)  # (… 1 C)
    present = (counts > 0).sum(dim=-1)  # (… 1)
    return (hot / counts.clamp_min(1.0)).sum(dim=-1) / present


def checked_tensors(
    tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    """The tensors as float32 copies, if they have these names and shapes and are finite."""
    if tensors.keys() != shapes.keys():
        raise RecipeError(
            f"a head of this kind keeps {_names(shapes)}, but got {_names(tensors)}. "
            "Rebuild it from what it has saved."
        )
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            raise RecipeError(
                f"the head's '{name}' is {tuple(tensors[name].shape)}, but these classes and this model need "
                f"{shape}. Use the classes and the model that the head was made with."
            )
        if not bool(torch.isfinite(tensors[name]).all()):
            raise RecipeError(f"the head's '{name}' holds NaN or infinity. Make the head anew.")
    return {name: tensors[name].detach().float().clone() for name in shapes}


def _check(evidence: LabelledFeatures) -> None:
    features, labels, text = evidence.features, evidence.labels, evidence.text
    if features.ndim != 2 or text.ndim != 2 or features.shape[1] != text.shape[1] or len(text) < 2:
        raise SupportError(
            f"features are {tuple(features.shape)} and class embeddings {tuple(text.shape)}, but (N D) and "
            "(C D) of one model are needed, with 2 classes or more."
        )
    if labels.shape != features.shape[:1] or not bool(((labels >= UNUSED) & (labels < len(text))).all()):
        raise SupportError(
            f"labels of shape {tuple(labels.shape)} do not fit {len(features)} features of {len(text)} "
            f"classes. Give each its class number, 0 to {len(text) - 1}."
        )
    if not bool(evidence.used.any()):
        raise SupportError("no feature has a label, so there is nothing to learn from. Label at least one.")
    lengths = torch.cat([features, text]).norm(dim=1)
    if not bool(((lengths - 1.0).abs() < LENGTH_TOLERANCE).all()):
        raise SupportError(
            f"features and class embeddings must have length 1, but lengths go from {lengths.min():.3g} to "
            f"{lengths.max():.3g}. Normalise them first."
        )


def _names(tensors: Iterable[str]) -> str:
    return ", ".join(sorted(tensors)) or "nothing"
