"""Baselines on the features that the product's head sees: several levels of the tower, each image and a view.

    shots, features_of = read_levels(engine, visual, problem, text=text, pixels=pixels)
    head = KernelRidge.fitted(shots)
    head.logits(features_of(problem.pixels)).argmax(dim=1)

Heads that see other features cannot be compared, so these rows give the baselines what `text-probe` has
(`clip.feature_levels`). A tower that was fine-tuned goes half of the way, as the coefficients of `auto` do,
and gets the same head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from atlas_engine import runtime
from atlas_engine.adapt.trainable_part import FrozenSplit
from atlas_engine.data.augment import Augment
from atlas_engine.engine import Atlas
from atlas_engine.heads.base import LabelledFeatures
from atlas_engine.runtime import frozen_copy
from studies.problems.few_shot import Problem

__all__ = ["KernelRidge", "move_halfway", "read_levels"]

WIDTHS = (1.0, 3.0, 10.0, 30.0)
"""Candidates of the kernel's width β."""
RIDGES = (0.01, 0.1, 1.0, 10.0)
"""Candidates of the ridge."""
ONE_SHOT = (1.0, 0.01)
"""Width and ridge where no class has two shots: the best of all on six data sets of the bank. Without
its only shot nothing tells a class, so the error of leaving one out is least where nothing is learned."""
HALFWAY = 0.5  # the midpoint of WiSE-FT (CVPR 2022), as `auto` keeps it

FeaturesOf = Callable[[Tensor], Tensor]
"""Pixels (N 3 S S) to features (N D) of length 1."""


def read_levels(
    engine: Atlas, visual: nn.Module, problem: Problem, *, text: Tensor, pixels: Tensor, views: int = 1
) -> tuple[LabelledFeatures, FeaturesOf]:
    """Features of the shots, then of random views of each, (1 + views) N rows; and those of other pixels."""
    split = FrozenSplit(replace(engine.backbone, visual=visual), share=1.0, multi_level=True)
    clean = split.activations(pixels.float() / 255)
    split.fit_feature_stats(clean)
    augment, draw = Augment(jitter=0.0), runtime.generator(problem.seed)
    random = [split.activations(augment(pixels, draw)) for _ in range(views)]
    features = torch.cat([split.features(activations) for activations in (clean, *random)])
    head, scale = split.zero_shot_head(text, features.shape[1])
    labels = torch.tensor(problem.support.labels).repeat(1 + views)
    shots = LabelledFeatures(features, labels, head, logit_scale=scale)
    return shots, lambda others: split.features(split.activations(others.float() / 255))


def move_halfway(visual: nn.Module, difference: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the tower at θ0 + Δ / 2."""
    tower = frozen_copy(visual, share=False)
    with torch.no_grad():
        for name, weights in tower.named_parameters():
            if name in difference:
                weights.add_(difference[name].to(weights), alpha=HALFWAY)
    return tower


@dataclass(frozen=True, eq=False)
class KernelRidge:
    """Kernel ridge regression of what zero-shot leaves over (after ProKeR, CVPR 2025), in closed form.

        k(x, y) = exp(−β (1 − cos(x, y))),      p(x) = softmax of the zero-shot logits
        α = (K + ridge · I)⁻¹ (Y − p(shots)),   answer(x) = p(x) + k(x, shots) α

    β and the ridge are those with the smallest squared error when each shot is left out in turn, which has a
    closed form too: the error of shot i is α_i / ((K + ridge · I)⁻¹)_ii. It is fitted without random views: a
    view of the shot that is left out would tell its label. Where no class has two shots, they are `ONE_SHOT`.
    """

    shots: Float[Tensor, "N D"]
    alpha: Float[Tensor, "N C"]
    text: Float[Tensor, "C D"]
    logit_scale: float
    width: float

    @classmethod
    def fit(cls, support: LabelledFeatures) -> KernelRidge:
        """The regression with the best width and ridge."""
        features, text, scale = support.features, support.text, support.logit_scale
        residual = support.one_hot - _zero_shot_probs(features, text, scale)
        alone = int(support.counts.max()) < 2
        widths, ridges = ([one] for one in ONE_SHOT) if alone else (WIDTHS, RIDGES)
        found: list[tuple[float, float, Tensor]] = []
        for width in widths:
            kernel = _kernel(features, features, width)
            for ridge in ridges:
                inverse = torch.linalg.inv(kernel + ridge * torch.eye(len(kernel)))
                alpha = inverse @ residual
                left_out = alpha / inverse.diagonal().unsqueeze(1)
                found.append((float(left_out.square().sum()), width, alpha))
        _, width, alpha = min(found, key=lambda one: one[0])
        return cls(features, alpha, text, scale, width)

    def logits(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B C"]:
        """The regression's answers; they are no probabilities, but their order is the ranking."""
        prior = _zero_shot_probs(features, self.text, self.logit_scale)
        return prior + _kernel(features, self.shots, self.width) @ self.alpha


def _kernel(x: Float[Tensor, "B D"], y: Float[Tensor, "N D"], width: float) -> Float[Tensor, "B N"]:
    return torch.exp(-width * (1 - x @ y.T))


def _zero_shot_probs(
    features: Float[Tensor, "B D"], text: Float[Tensor, "C D"], scale: float
) -> Float[Tensor, "B C"]:
    return torch.softmax(scale * features @ text.T, dim=1)
