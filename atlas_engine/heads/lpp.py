"""LP++: a linear probe that blends what the images show with what the names say. Knows nothing of towers.

    logits_c = f · (w_c + α_c t_c)

(Huang et al., CVPR 2024.) w starts at the class sums of the features, α at the model's logit scale, and both
go down by block majorise-minimise: each block in turn takes the step that a bound on the curvature of
cross-entropy allows, so there is no learning rate to choose and no step makes the loss larger.

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
from torch import Tensor

from atlas_engine.heads.base import (
    LabelledFeatures,
    TensorRate,
    checked_tensors,
    class_balanced_weights,
    one_hot,
)

__all__ = ["LPP", "Descent", "descend"]

ITERATIONS = 50  # few keep w small where classes separate; the paper takes 300 and lets validation choose
LOGITS_PER_LR = 2.5


@dataclass(frozen=True, eq=False)
class LPP:
    """Visual prototypes w and a multiplier of the text for each class; a class not seen is text alone."""

    w: Tensor  # (C D)
    alpha: Tensor  # (C)
    text: Tensor  # (C D)
    logit_scale: float
    seen: Tensor  # (C), whether there were images: the rest is not learned

    @classmethod
    def start(cls, evidence: LabelledFeatures) -> LPP:
        """Class sums and the model's logit scale, before any step."""
        return cls._made(evidence, iterations=0)

    @classmethod
    def fitted(cls, evidence: LabelledFeatures, *, iterations: int = ITERATIONS) -> LPP:
        """The probe after so many rounds of block majorise-minimise."""
        return cls._made(evidence, iterations=iterations)

    @classmethod
    def folds(cls, evidence: LabelledFeatures, labels: Tensor) -> list[LPP]:
        """`fitted` for R labellings (R N) of the evidence, side by side."""
        end = descend(evidence, labels, iterations=ITERATIONS)
        return [
            cls(w, alpha, evidence.text, evidence.logit_scale, seen)
            for w, alpha, seen in zip(end.w, end.alpha, end.seen, strict=True)
        ]

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], text: Tensor, *, logit_scale: float) -> LPP:
        """Rebuild it from what ``tensors`` gave."""
        own = checked_tensors(tensors, {"w": tuple(text.shape), "alpha": (len(text),)})
        seen = torch.ones(len(text), dtype=torch.bool, device=text.device)
        return cls(text=text, logit_scale=logit_scale, seen=seen, **own)

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Prototypes and multipliers."""
        return {"w": self.w, "alpha": self.alpha}

    @property
    def rates(self) -> Mapping[str, TensorRate]:
        """Steps that move no logit by more than 2.5 times the loop's learning rate.

        AdamW moves an entry by at most lr, and |Δlogit| ≤ ‖f‖₁ lr ≤ √D lr for w, |f · t| lr ≤ lr for α. Decay
        pulls w to zero, that is to the text alone; α has no such place to go.
        """
        return {
            "w": TensorRate(LOGITS_PER_LR * self.text.shape[1] ** -0.5, weight_decay=None),
            "alpha": TensorRate(LOGITS_PER_LR),
        }

    def logits(self, features: Tensor, learned: Mapping[str, Tensor] | None = None) -> Tensor:
        """(B D) -> (B C)."""
        now = {**self.tensors, **(learned or {})}
        w = torch.where(self.seen.unsqueeze(1), now["w"], self.w)
        alpha = torch.where(self.seen, now["alpha"], self.alpha)
        return features.float() @ (w + alpha.unsqueeze(1) * self.text).T  # (B D) @ (D C) -> (B C)

    def at(self, learned: Mapping[str, Tensor]) -> LPP:
        """The same probe with other prototypes or multipliers; those of classes not seen stay."""
        now = {**self.tensors, **learned}
        w = torch.where(self.seen.unsqueeze(1), now["w"].detach(), self.w)
        return dataclasses.replace(self, w=w, alpha=torch.where(self.seen, now["alpha"].detach(), self.alpha))

    @classmethod
    def _made(cls, evidence: LabelledFeatures, *, iterations: int) -> LPP:
        end = descend(evidence, evidence.labels.unsqueeze(0), iterations=iterations)
        return cls(end.w[0], end.alpha[0], evidence.text, evidence.logit_scale, end.seen[0])


@dataclass(frozen=True, eq=False)
class Descent:
    """Where R descents have come to."""

    w: Tensor  # (R C D)
    alpha: Tensor  # (R C)
    seen: Tensor  # (R C)
    losses: Tensor  # (iterations + 1, R)


def descend(evidence: LabelledFeatures, labels: Tensor, *, iterations: int) -> Descent:
    """LP++ for R labellings (R N) of the same features at once; folds differ in what they leave unused.

    w never leaves the span of the features, so all is done in min(N, D) coordinates of that span.
    """
    basis = torch.linalg.qr(evidence.features.T).Q  # (D r)
    problem = _Problem(evidence, evidence.features @ basis, labels)
    w, alpha = problem.w, problem.alpha
    visual, losses = problem.visual(w), []
    for _ in range(iterations):
        residual, loss = problem.residual(visual, alpha)  # (R N C)
        losses.append(loss)
        w = w - problem.step_w(residual)
        visual = problem.visual(w)
        residual, _ = problem.residual(visual, alpha)
        alpha = alpha - problem.step_alpha(residual)
    losses.append(problem.residual(visual, alpha)[1])
    return Descent(w @ basis.T, alpha, problem.seen, torch.stack(losses))


class _Problem:
    """Balanced cross-entropy of R labellings, with its gradients over its curvature bounds."""

    def __init__(self, evidence: LabelledFeatures, points: Tensor, labels: Tensor) -> None:
        hot = one_hot(labels, len(evidence.text))  # (R N C)
        counts = hot.sum(dim=1)  # (R C)
        weights = class_balanced_weights(hot)  # (R N)
        self.points = points  # (N r)
        self.text = evidence.features @ evidence.text.T  # (N C)
        self.hot, self.weights = hot, weights.unsqueeze(2)
        self.seen = counts > 0
        sums = (hot * self.weights).mT @ points  # (R C r)
        self.w = sums * counts.sum(dim=1).reshape(-1, 1, 1)  # a class's mean, times the mean count
        self.alpha = torch.full_like(counts, evidence.logit_scale)
        moments = (points.T * weights.unsqueeze(1)) @ points  # (R r r)
        self.bound_w = 0.5 * torch.linalg.eigvalsh(moments)[:, -1].reshape(-1, 1, 1)
        self.bound_alpha = 0.5 * weights @ self.text.square()  # (R N) @ (N C) -> (R C)

    def visual(self, w: Tensor) -> Tensor:
        """The images' part of the logits, (R N C)."""
        return self.points @ w.mT

    def residual(self, visual: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """∂loss/∂logits (R N C), and the losses (R)."""
        scores = (visual + alpha.unsqueeze(1) * self.text).log_softmax(dim=2)
        losses = -(scores * self.hot * self.weights).sum(dim=(1, 2))
        return (scores.exp() - self.hot) * self.weights, losses

    def step_w(self, residual: Tensor) -> Tensor:
        step: Tensor = residual.mT @ self.points / self.bound_w  # (R C N) @ (N r) -> (R C r)
        return step * self.seen.unsqueeze(2)

    def step_alpha(self, residual: Tensor) -> Tensor:
        tiny = torch.finfo(torch.float32).tiny  # a name at right angles to every image gets no step
        return (residual * self.text).sum(dim=1) / self.bound_alpha.clamp_min(tiny) * self.seen
