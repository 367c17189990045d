"""Linear probes: logistic regression on features, regularised towards zero or towards the class names.

    logits = f Vᵀ + b
    loss   = mean cross-entropy + ‖V − V₀‖² / (2 c N)        minimised over V and b by L-BFGS

The prior V₀ is 0 in CLIP's own linear probe (Radford et al., ICML 2021, appendix A.3), and logit_scale · text
in the text probe, which thus starts at zero-shot (as CLAP, CVPR 2024). The penalty falls as 1/N: the more
images, the weaker the prior. CLIP chooses c on validation images; a few-shot support has none to spare, so c
is a constant here, for features of length 1.

c does not depend on the logit scale s. Written as V = s · w, the penalty is s² ‖w − text‖² / (2 c N), and the
curvature of cross-entropy in w grows as s² too: the prior is worth as many images at CLIP's 100 as at 20.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.base import LabelledFeatures, TensorRate, validate_tensors

__all__ = ["REFERENCE_LOGIT_SCALE", "Probe"]

INVERSE_STRENGTH = 10.0  # c where V₀ is 0
REFERENCE_LOGIT_SCALE = 101.01785659790039
"""The bundled model's logit scale on features of all levels, at which the pull to the text was chosen."""
TEXT_INVERSE_STRENGTH = 0.25 * REFERENCE_LOGIT_SCALE**2
"""c where V₀ is the text; best with 1, 4 and 16 images per class on the bank's data sets."""
PULL_PER_IMAGE = 0.03  # chosen among 0 … 3 on data sets of the bank; below 0.3 it matters little
ITERATIONS = 200  # at most, of L-BFGS
PRIORS = ("zero", "text")
LOGITS_PER_LR = 2.5  # largest change of a logit in one step of joint training, in units of the learning rate


@dataclass(frozen=True, eq=False)
class Probe:
    """A linear classifier with a bias: f Vᵀ + b."""

    weight: Float[Tensor, "C D"]
    bias: Float[Tensor, " C"]

    @classmethod
    def start(cls, support: LabelledFeatures, *, prior: str = "zero") -> Probe:
        """The probe before any image: V₀ as the weight, and a bias of 0."""
        if prior not in PRIORS:
            raise ConfigError(unknown_name("start of a linear probe", prior, PRIORS))
        weight = support.text * (support.logit_scale if prior == "text" else 0.0)
        return cls(weight, weight.new_zeros(len(weight)))

    @classmethod
    def fit(
        cls, support: LabelledFeatures, *, prior: str = "zero", inverse_strength: float = INVERSE_STRENGTH
    ) -> Probe:
        """The probe at the minimum of the convex loss. A class without images keeps V₀ and a bias of 0."""
        start = cls.start(support, prior=prior)
        with torch.inference_mode(False), torch.enable_grad():
            return start.at(_minimise(start, support, inverse_strength))

    @classmethod
    def fit_from_text(cls, support: LabelledFeatures) -> Probe:
        """The probe at the minimum of the loss with V₀ = logit_scale · text."""
        return cls.fit(support, prior="text", inverse_strength=TEXT_INVERSE_STRENGTH)

    def fit_further(self, support: LabelledFeatures, *, images_before: int) -> Probe:
        """The probe at the minimum of the loss with V₀ and b₀ of this probe, which so many images have made.

        The pull to V₀ grows with them, by `PULL_PER_IMAGE` of the text probe's pull each.
        """
        strength = TEXT_INVERSE_STRENGTH / (1.0 + PULL_PER_IMAGE * images_before)
        with torch.inference_mode(False), torch.enable_grad():
            return self.at(_minimise(self, support, strength, pull_bias=True))

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        text: Float[Tensor, "C D"],
        *,
        logit_scale: float,  # noqa: ARG003
    ) -> Probe:
        """The probe that a recipe stored as ``tensors``."""
        return cls(**validate_tensors(tensors, {"weight": tuple(text.shape), "bias": (len(text),)}))

    def widened(self, width: int, *, factor: float) -> Probe:
        """The probe that gives the same logits on wider features (B ``width``) that begin with f / factor."""
        return Probe(factor * F.pad(self.weight, (0, width - self.weight.shape[1])), self.bias)

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """``weight`` (C D) and ``bias`` (C)."""
        return {"weight": self.weight, "bias": self.bias}

    @property
    def rates(self) -> Mapping[str, TensorRate]:
        """Rates at which a step on either tensor changes a logit by 2.5 lr at most: ‖f‖₁ ≤ √D (see `LPP`)."""
        width = self.weight.shape[1]
        return {"weight": TensorRate(LOGITS_PER_LR * width**-0.5), "bias": TensorRate(LOGITS_PER_LR)}

    def logits(
        self, features: Float[Tensor, "B D"], overrides: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "B C"]:
        """f Vᵀ + b, with ``overrides`` in place of the probe's own weight or bias."""
        tensors = {**self.tensors, **(overrides or {})}
        return features.float() @ tensors["weight"].T + tensors["bias"]  # (B D) @ (D C) + (C) -> (B C)

    def at(self, values: Mapping[str, Tensor]) -> Probe:
        """The probe with these values as its weight or bias."""
        return dataclasses.replace(self, **{name: value.detach() for name, value in values.items()})


def _minimise(
    start: Probe, support: LabelledFeatures, inverse_strength: float, *, pull_bias: bool = False
) -> dict[str, Tensor]:
    """Weight and bias at the minimum of the loss, by L-BFGS from ``start``, which holds V₀.

    With ``pull_bias`` the penalty holds the bias as well. Without it, images of one class alone would raise
    the bias of that class without end.
    """
    features, labels = support.features[support.used], support.labels[support.used]
    has_images = (support.counts > 0).float()  # (C): the other classes do not move
    weight, bias = start.weight.clone().requires_grad_(), start.bias.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [weight, bias], max_iter=ITERATIONS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        change = (weight - start.weight) * has_images.unsqueeze(1)
        shift = (bias - start.bias) * has_images
        logits = features @ (start.weight + change).T + (start.bias + shift)
        moved = change.square().sum() + (shift.square().sum() if pull_bias else 0.0)
        penalty = moved / (2.0 * inverse_strength * len(labels))
        value = F.cross_entropy(logits, labels) + penalty
        torch.autograd.backward(value)
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return {"weight": weight, "bias": bias}
