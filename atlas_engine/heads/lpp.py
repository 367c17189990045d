"""LP++: a linear probe that blends visual prototypes with the embeddings of the class names.

    logits_c = f · (w_c + α_c t_c)

(Huang et al., CVPR 2024.) w starts at the class sums of the features, α at the model's logit scale. Both are
minimised by block majorise-minimise: each block in turn takes the step that a bound on the curvature of
cross-entropy allows, so there is no learning rate to choose and no step increases the loss.

The Hessian of softmax is at most ½ I (Böhning 1992), so with image weights s_i that sum to 1 the bounds are
½ λmax(Σ s_i f_i f_iᵀ) for w, and ½ Σ s_i (f_i · t_c)² for each α_c by itself. The paper takes ¼ for w, which
holds for one class at a time, and one step for all α; it starts α at 250 · mean(f · t), which is near the
logit scale for the model it was chosen on and for no other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from atlas_engine.heads.base import (
    LabelledFeatures,
    TensorRate,
    class_balanced_weights,
    validate_tensors,
)

__all__ = ["LPP", "Descent", "descend"]

ITERATIONS = 50  # few keep w small where classes separate; the paper takes 300 and lets validation choose
LOGITS_PER_LR = 2.5  # largest change of a logit in one step of joint training, in units of the learning rate


@dataclass(frozen=True, eq=False)
class LPP:
    """Visual prototypes w and a text multiplier α for each class; a class without images is text alone."""

    w: Float[Tensor, "C D"]
    alpha: Float[Tensor, " C"]
    text: Float[Tensor, "C D"]
    logit_scale: float
    seen: Bool[Tensor, " C"]  # classes that had images: the others are not learned

    @classmethod
    def start(cls, support: LabelledFeatures) -> LPP:
        """The probe before any step: class sums and the model's logit scale."""
        return cls.fit(support, iterations=0)

    @classmethod
    def fit(cls, support: LabelledFeatures, *, iterations: int = ITERATIONS) -> LPP:
        """The probe after ``iterations`` rounds of block majorise-minimise."""
        end = descend(support, iterations=iterations)
        return cls(end.w, end.alpha, support.text, support.logit_scale, end.seen)

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], text: Float[Tensor, "C D"], *, logit_scale: float
    ) -> LPP:
        """The probe that a recipe stored as ``tensors``."""
        own = validate_tensors(tensors, {"w": tuple(text.shape), "alpha": (len(text),)})
        seen = torch.ones(len(text), dtype=torch.bool, device=text.device)
        return cls(text=text, logit_scale=logit_scale, seen=seen, **own)

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Prototypes and multipliers."""
        return {"w": self.w, "alpha": self.alpha}

    @property
    def rates(self) -> Mapping[str, TensorRate]:
        """Rates at which a step on either tensor changes a logit by at most 2.5 times the loop's rate.

        AdamW moves an entry by at most lr, and |Δlogit| ≤ ‖f‖₁ lr ≤ √D lr for w, |f · t| lr ≤ lr for α.
        Weight decay pulls w to zero, which is the text alone; it would pull α away from zero-shot.
        """
        return {
            "w": TensorRate(LOGITS_PER_LR * self.text.shape[1] ** -0.5, weight_decay=None),
            "alpha": TensorRate(LOGITS_PER_LR),
        }

    def logits(
        self, features: Float[Tensor, "B D"], overrides: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "B C"]:
        """f · (w_c + α_c t_c); overrides of classes without images are ignored."""
        tensors = {**self.tensors, **(overrides or {})}
        w = torch.where(self.seen.unsqueeze(1), tensors["w"], self.w)
        alpha = torch.where(self.seen, tensors["alpha"], self.alpha)
        return features.float() @ (w + alpha.unsqueeze(1) * self.text).T  # (B D) @ (D C) -> (B C)

    def at(self, values: Mapping[str, Tensor]) -> LPP:
        """The same probe with other prototypes or multipliers; classes without images keep theirs."""
        tensors = {name: value.detach() for name, value in {**self.tensors, **values}.items()}
        w = torch.where(self.seen.unsqueeze(1), tensors["w"], self.w)
        return dataclasses.replace(self, w=w, alpha=torch.where(self.seen, tensors["alpha"], self.alpha))


@dataclass(frozen=True, eq=False)
class Descent:
    """Where block majorise-minimise ended, and the loss before each round and at the end."""

    w: Float[Tensor, "C D"]
    alpha: Float[Tensor, " C"]
    seen: Bool[Tensor, " C"]
    losses: Float[Tensor, " rounds"]


def descend(support: LabelledFeatures, *, iterations: int) -> Descent:
    """w and α after ``iterations`` rounds, each a step on w and then a step on α.

    w never leaves the span of the features, so everything is computed in min(N, D) coordinates of that span.
    """
    basis = torch.linalg.qr(support.features.T).Q  # (D r)
    loss = _BalancedLoss(support, support.features @ basis)
    w, alpha = loss.start_w, loss.start_alpha
    visual, losses = loss.visual_logits(w), []
    for _ in range(iterations):
        # step on w with α fixed
        residual, value = loss.residual(visual, alpha)
        losses.append(value)
        w = w - loss.step_w(residual)
        visual = loss.visual_logits(w)
        # step on α with w fixed
        residual, _ = loss.residual(visual, alpha)
        alpha = alpha - loss.step_alpha(residual)
    losses.append(loss.residual(visual, alpha)[1])
    return Descent(w @ basis.T, alpha, loss.seen, torch.stack(losses))


class _BalancedLoss:
    """Class-balanced cross-entropy of the support, with steps that are gradients over curvature bounds."""

    def __init__(self, support: LabelledFeatures, points: Float[Tensor, "N r"]) -> None:
        """``points`` are the support's features in coordinates of their span."""
        one_hot, counts = support.one_hot, support.counts
        weights = class_balanced_weights(one_hot)  # (N)
        self.points = points
        self.text_cosines = support.features @ support.text.T  # (N C)
        self.one_hot, self.weights = one_hot, weights.unsqueeze(1)
        self.seen = counts > 0  # (C)
        sums = (one_hot * self.weights).mT @ points  # (C r)
        self.start_w = sums * counts.sum()  # a class's mean feature, times the mean count
        self.start_alpha = torch.full_like(counts, support.logit_scale)
        second_moment = (points.T * weights) @ points  # (r r)
        self.bound_w = 0.5 * torch.linalg.eigvalsh(second_moment)[-1]  # ()
        self.bound_alpha = 0.5 * weights @ self.text_cosines.square()  # (N) @ (N C) -> (C)

    def visual_logits(self, w: Float[Tensor, "C r"]) -> Float[Tensor, "N C"]:
        """f · w_c, the visual part of the logits."""
        return self.points @ w.mT

    def residual(
        self, visual: Float[Tensor, "N C"], alpha: Float[Tensor, " C"]
    ) -> tuple[Float[Tensor, "N C"], Float[Tensor, ""]]:
        """∂loss/∂logits, and the loss."""
        log_probs = (visual + alpha * self.text_cosines).log_softmax(dim=1)
        loss = -(log_probs * self.one_hot * self.weights).sum()
        return (log_probs.exp() - self.one_hot) * self.weights, loss

    def step_w(self, residual: Float[Tensor, "N C"]) -> Float[Tensor, "C r"]:
        """The gradient over its curvature bound; zero for classes without images."""
        step: Tensor = residual.mT @ self.points / self.bound_w  # (C N) @ (N r) -> (C r)
        return step * self.seen.unsqueeze(1)

    def step_alpha(self, residual: Float[Tensor, "N C"]) -> Float[Tensor, " C"]:
        """The gradient over its curvature bound; zero for classes without images."""
        tiny = torch.finfo(torch.float32).tiny  # a class name orthogonal to every image gets no step
        gradient = (residual * self.text_cosines).sum(dim=0)
        return gradient / self.bound_alpha.clamp_min(tiny) * self.seen
