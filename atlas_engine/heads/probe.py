"""A plain linear probe on the features, the baseline of the CLIP papers. Knows nothing of towers.

    logits = f Vᵀ + b,   with   mean cross-entropy + ‖V − V₀‖² / (2 C N)   made small by L-BFGS

V₀ is 0, as in CLIP's own linear probe (Radford et al., 2021, A.3), or logit_scale · text, which starts from
zero-shot and pulls back to it (as CLAP, CVPR 2024). The pull falls as 1/N: more images, less prior. CLIP
sweeps C on validation images; without any, C is 10 for features of length 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.base import LabelledFeatures, TensorRate, checked_tensors

__all__ = ["Probe"]

INVERSE_STRENGTH = 10.0
WEAK = 0.25  # of logit_scale², best at 1, 4 and 16 images a class on the sets of the bank
ITERATIONS = 200
STARTS = ("zero", "text")


@dataclass(frozen=True, eq=False)
class Probe:
    """A linear classifier with a bias."""

    weight: Tensor  # (C D)
    bias: Tensor  # (C)

    @classmethod
    def start(cls, evidence: LabelledFeatures, *, centre: str = "zero") -> Probe:
        """The probe before it has seen an image: nothing, or the class names."""
        if centre not in STARTS:
            raise ConfigError(unknown_name("start of a linear probe", centre, STARTS))
        text = evidence.text * (evidence.logit_scale if centre == "text" else 0.0)
        return cls(text, text.new_zeros(len(text)))

    @classmethod
    def fitted(
        cls, evidence: LabelledFeatures, *, centre: str = "zero", inverse_strength: float = INVERSE_STRENGTH
    ) -> Probe:
        """The one minimum of the loss. A class without images keeps its start: `text` alone, or nothing."""
        start = cls.start(evidence, centre=centre)
        with torch.inference_mode(False), torch.enable_grad():
            return start.at(_minimised(start, evidence, inverse_strength))

    @classmethod
    def from_text(cls, evidence: LabelledFeatures) -> Probe:
        """Fitted from the class names, with a weak pull back to them."""
        return cls.fitted(evidence, centre="text", inverse_strength=WEAK * evidence.logit_scale**2)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], text: Tensor, *, logit_scale: float) -> Probe:  # noqa: ARG003
        """Rebuild it from what ``tensors`` gave."""
        return cls(**checked_tensors(tensors, {"weight": tuple(text.shape), "bias": (len(text),)}))

    def widened(self, width: int, *, factor: float) -> Probe:
        """The same answers for features that are wider and, where this one looks, shorter by a factor."""
        return Probe(factor * F.pad(self.weight, (0, width - self.weight.shape[1])), self.bias)

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Weight and bias."""
        return {"weight": self.weight, "bias": self.bias}

    @property
    def rates(self) -> Mapping[str, TensorRate]:
        """As LP++'s prototypes: no step moves a logit by more than 2.5 times the loop's learning rate."""
        return {"weight": TensorRate(2.5 * self.weight.shape[1] ** -0.5), "bias": TensorRate(2.5)}

    def logits(self, features: Tensor, learned: Mapping[str, Tensor] | None = None) -> Tensor:
        """(B D) -> (B C)."""
        now = {**self.tensors, **(learned or {})}
        return features.float() @ now["weight"].T + now["bias"]

    def at(self, learned: Mapping[str, Tensor]) -> Probe:
        """The same probe with another weight or bias."""
        return dataclasses.replace(self, **{name: value.detach() for name, value in learned.items()})


def _minimised(start: Probe, evidence: LabelledFeatures, inverse_strength: float) -> dict[str, Tensor]:
    used = evidence.used
    features, labels = evidence.features[used], evidence.labels[used]
    seen = (evidence.counts > 0).float()
    weight, bias = start.weight.clone().requires_grad_(), start.bias.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [weight, bias], max_iter=ITERATIONS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        moved = (weight - start.weight) * seen.unsqueeze(1)
        logits = features @ (start.weight + moved).T + bias * seen
        value = F.cross_entropy(logits, labels) + moved.square().sum() / (
            2.0 * inverse_strength * len(labels)
        )
        torch.autograd.backward(value)
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return {"weight": weight, "bias": bias}
