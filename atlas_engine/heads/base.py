"""What a head is, what it is fitted on, and zero-shot, the head that needs no images.

    support = LabelledFeatures(features, labels, text, logit_scale=100.0)
    head = LPP.fitted(support)
    logits = head.logits(new_features)                                          # (B D) -> (B C)
    same = LPP.from_tensors(head.tensors, text, logit_scale=100.0)              # from a recipe

Rows labelled `UNUSED` stay in the support but are not learned from. A fold is the support with its held-out
rows unused, so the tensors of all folds have the same shape and can be learned in parallel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.errors import RecipeError, SupportError

__all__ = [
    "UNUSED",
    "Head",
    "LabelledFeatures",
    "TensorRate",
    "ZeroShot",
    "class_balanced_weights",
    "class_prototypes",
    "one_hot",
    "text_logits",
    "validate_tensors",
]

UNUSED = -1
"""The label of a row that is not learned from."""

UNIT_LENGTH_TOLERANCE = 1e-2  # of a unit vector that went through half precision


@dataclass(frozen=True, eq=False)
class LabelledFeatures:
    """What a head is fitted on, checked when it is made.

    The tensors are copied, detached and moved to the device of the features.
    """

    features: Tensor  # (N D), rows of length 1
    labels: Tensor  # (N), class numbers, or UNUSED
    text: Tensor  # (C D), embeddings of the class names, rows of length 1
    logit_scale: float = field(kw_only=True)

    def __post_init__(self) -> None:
        device = self.features.device
        object.__setattr__(self, "features", self.features.detach().float().clone())
        object.__setattr__(self, "labels", self.labels.detach().to(device, torch.long, copy=True))
        object.__setattr__(self, "text", self.text.detach().to(device, torch.float32, copy=True))
        _check_support(self)

    def without(self, rows: Int[Tensor, " K"] | Bool[Tensor, " N"]) -> LabelledFeatures:
        """The same support with some rows (positions, or a mask) held out."""
        labels = self.labels.clone()
        labels[rows.to(labels.device)] = UNUSED
        return self.with_labels(labels)

    def with_labels(self, labels: Int[Tensor, " N"]) -> LabelledFeatures:
        """The same features with other labels."""
        return dataclasses.replace(self, labels=labels)

    @property
    def used(self) -> Bool[Tensor, " N"]:
        """Which rows are learned from."""
        return self.labels != UNUSED

    @property
    def one_hot(self) -> Float[Tensor, "N C"]:
        """The labels, one-hot; an unused row is all zero."""
        return one_hot(self.labels, len(self.text))

    @property
    def counts(self) -> Float[Tensor, " C"]:
        """Used rows of each class."""
        return self.one_hot.sum(dim=0)

    def __repr__(self) -> str:
        size = f"{int(self.used.sum())} of {len(self.labels)} images, {len(self.text)} classes"
        return f"LabelledFeatures({size}, on {self.features.device})"


@runtime_checkable
class Head(Protocol):
    """Features to logits, by tensors of which some may be learned jointly with the coefficients."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """What a recipe stores of the head, in float32."""
        ...

    @property
    def rates(self) -> Mapping[str, TensorRate]:
        """The tensors that may be learned jointly with the coefficients, and how fast."""
        ...

    def logits(
        self, features: Float[Tensor, "B D"], overrides: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "B C"]:
        """Logits of features of length 1, differentiable in the features and in ``overrides``.

        ``overrides`` replaces tensors of the head by name for this call.
        """
        ...

    def at(self, values: Mapping[str, Tensor]) -> Head:
        """The same head with other values of its learned tensors."""
        ...


@dataclass(frozen=True)
class TensorRate:
    """How a tensor is learned jointly with λ, relative to the loop's settings; None keeps the loop's own."""

    lr_scale: float = 1.0
    weight_decay: float | None = 0.0
    normalise: bool | None = False


@dataclass(frozen=True, eq=False)
class ZeroShot:
    """The class names alone: logit_scale · f tᵀ. It has no tensors of its own."""

    text: Float[Tensor, "C D"]
    logit_scale: float

    @classmethod
    def fit(cls, support: LabelledFeatures) -> ZeroShot:
        """The head of the support's class names; features and labels are not used."""
        return cls(support.text, support.logit_scale)

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], text: Float[Tensor, "C D"], *, logit_scale: float
    ) -> ZeroShot:
        """The head of these class names; ``tensors`` must be empty."""
        validate_tensors(tensors, {})
        return cls(text, logit_scale)

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """None."""
        return {}

    @property
    def rates(self) -> Mapping[str, TensorRate]:
        """None."""
        return {}

    def logits(
        self,
        features: Float[Tensor, "B D"],
        overrides: Mapping[str, Tensor] | None = None,  # noqa: ARG002
    ) -> Float[Tensor, "B C"]:
        """logit_scale · f tᵀ."""
        return text_logits(features, self.text, logit_scale=self.logit_scale)

    def at(self, values: Mapping[str, Tensor]) -> ZeroShot:
        """Itself; ``values`` must be empty."""
        validate_tensors(values, {})
        return self


def text_logits(
    features: Float[Tensor, "B D"], text: Float[Tensor, "C D"], *, logit_scale: float
) -> Float[Tensor, "B C"]:
    """Zero-shot logits: logit_scale · ⟨feature, class name⟩, in float32."""
    return logit_scale * features.float() @ text.T  # (B D) @ (D C) -> (B C)


def one_hot(labels: Int[Tensor, " N"], classes: int) -> Float[Tensor, "N C"]:
    """The labels, one-hot; an unused label is all zero."""
    return F.one_hot(labels.clamp_min(0), classes).float() * (labels != UNUSED).unsqueeze(-1)


def class_prototypes(
    features: Float[Tensor, "N D"], labels: Int[Tensor, " N"], classes: int
) -> Float[Tensor, "C D"]:
    """The mean feature of each class, of length 1: a starting head where class names cannot be read.

    Snell et al. (NeurIPS 2017). Unused rows do not count; a class without a used row is an error.
    """
    marks = one_hot(labels, classes)  # (N C)
    missing = (marks.sum(dim=0) == 0).nonzero().flatten().tolist()
    if missing:
        raise SupportError(
            f"class number {missing[0]} has no image, so it has no prototype. Give each class one image or "
            "more."
        )
    return F.normalize(marks.T @ features.float(), dim=-1)  # (C N) @ (N D) -> (C D)


def class_balanced_weights(one_hot_labels: Float[Tensor, "N C"]) -> Float[Tensor, " N"]:
    """Weights of the rows, summing to 1, under which every class that has rows counts the same.

    A user with 16 images of one class and 2 of another has not said that the first is more frequent.
    """
    counts = one_hot_labels.sum(dim=-2, keepdim=True)  # (1 C)
    present = (counts > 0).sum(dim=-1)  # (1)
    return (one_hot_labels / counts.clamp_min(1.0)).sum(dim=-1) / present


def validate_tensors(
    tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    """Float32 copies of the tensors, if they have these names and shapes and are finite."""
    if tensors.keys() != shapes.keys():
        raise RecipeError(
            f"a head of this kind keeps {_join_names(shapes)}, but got {_join_names(tensors)}. "
            "Rebuild it from the tensors that it saved."
        )
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            raise RecipeError(
                f"the head's '{name}' is {tuple(tensors[name].shape)}, but these classes and this model need "
                f"{shape}. Use the classes and the model that the head was made with."
            )
        if not bool(torch.isfinite(tensors[name]).all()):
            raise RecipeError(f"the head's '{name}' holds NaN or infinity. Fit the head again.")
    return {name: tensors[name].detach().float().clone() for name in shapes}


def _check_support(support: LabelledFeatures) -> None:
    features, labels, text = support.features, support.labels, support.text
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
    if not bool(support.used.any()):
        raise SupportError("no feature has a label, so there is nothing to learn from. Label at least one.")
    lengths = torch.cat([features, text]).norm(dim=1)
    if not bool(((lengths - 1.0).abs() < UNIT_LENGTH_TOLERANCE).all()):
        raise SupportError(
            f"features and class embeddings must have length 1, but lengths go from {lengths.min():.3g} to "
            f"{lengths.max():.3g}. Normalise them first."
        )


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
