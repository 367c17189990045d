"""Linear probes: logistic regression on the features, from zero or from the class names.

    logits = f Vᵀ + b,   with   mean cross-entropy + ‖V − V₀‖² / (2 c N)   minimised by L-BFGS

V₀ is 0, as in CLIP's own linear probe (Radford et al., ICML 2021, appendix A.3), or logit_scale · text, which
starts at zero-shot and is pulled back to it (as CLAP, CVPR 2024). The pull falls as 1/N: more images, less
prior. CLIP sweeps c on validation images; we have none, so c is fixed for features of length 1.
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

__all__ = ["Probe"]

INVERSE_STRENGTH = 10.0  # c
TEXT_INVERSE_STRENGTH = (
    0.25  # c over logit_scale²; best at 1, 4 and 16 images a class on the bank's data sets
)
ITERATIONS = 200
PRIORS = ("zero", "text")
LOGITS_PER_LR = 2.5


@dataclass(frozen=True, eq=False)
class Probe:
    """A linear classifier with a bias: f Vᵀ + b."""

    weight: Float[Tensor, "C D"]
    bias: Float[Tensor, " C"]

    @classmethod
    def start(cls, support: LabelledFeatures, *, prior: str = "zero") -> Probe:
        """V₀ with a bias of zero: the probe before it has seen an image."""
        if prior not in PRIORS:
            raise ConfigError(unknown_name("start of a linear probe", prior, PRIORS))
        weight = support.text * (support.logit_scale if prior == "text" else 0.0)
        return cls(weight, weight.new_zeros(len(weight)))

    @classmethod
    def fitted(
        cls, support: LabelledFeatures, *, prior: str = "zero", inverse_strength: float = INVERSE_STRENGTH
    ) -> Probe:
        """The minimum of the (convex) loss. A class without images keeps its row of V₀ and a bias of zero."""
        start = cls.start(support, prior=prior)
        with torch.inference_mode(False), torch.enable_grad():
            return start.at(_minimise(start, support, inverse_strength))

    @classmethod
    def fitted_from_text(cls, support: LabelledFeatures) -> Probe:
        """The probe with V₀ = logit_scale · text, weakly pulled back to it."""
        return cls.fitted(
            support, prior="text", inverse_strength=TEXT_INVERSE_STRENGTH * support.logit_scale**2
        )

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
        """The probe with the same logits on features [f / factor, …] of ``width`` numbers."""
        return Probe(factor * F.pad(self.weight, (0, width - self.weight.shape[1])), self.bias)

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Weight and bias."""
        return {"weight": self.weight, "bias": self.bias}

    @property
    def rates(self) -> Mapping[str, TensorRate]:
        """As `LPP.rates`: no step moves a logit by more than 2.5 times the loop's learning rate."""
        width = self.weight.shape[1]
        return {"weight": TensorRate(LOGITS_PER_LR * width**-0.5), "bias": TensorRate(LOGITS_PER_LR)}

    def logits(
        self, features: Float[Tensor, "B D"], overrides: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "B C"]:
        """f Vᵀ + b."""
        tensors = {**self.tensors, **(overrides or {})}
        return features.float() @ tensors["weight"].T + tensors["bias"]

    def at(self, values: Mapping[str, Tensor]) -> Probe:
        """The same probe with another weight or bias."""
        return dataclasses.replace(self, **{name: value.detach() for name, value in values.items()})


def _minimise(start: Probe, support: LabelledFeatures, inverse_strength: float) -> dict[str, Tensor]:
    """Weight and bias at the minimum of the loss, by L-BFGS from ``start``."""
    features, labels = support.features[support.used], support.labels[support.used]
    seen = (support.counts > 0).float()  # (C): only classes with images move
    weight, bias = start.weight.clone().requires_grad_(), start.bias.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [weight, bias], max_iter=ITERATIONS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        change = (weight - start.weight) * seen.unsqueeze(1)
        logits = features @ (start.weight + change).T + bias * seen
        pull = change.square().sum() / (2.0 * inverse_strength * len(labels))
        value = F.cross_entropy(logits, labels) + pull
        torch.autograd.backward(value)
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return {"weight": weight, "bias": bias}
