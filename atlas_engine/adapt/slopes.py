"""Coefficients from the slopes of the margins at λ = 0, without training.

    mₙ     = logit of its class − log Σ exp(logits of the others)              the margin of image n, at λ = 0
    mₙ(λ)  ≈ mₙ + ⟨Jₙ, λ⟩,   Jₙ = ∂mₙ/∂λ                                       one backward pass per image
    λ      = argmin  mean softplus(−mₙ(λ)) + ρ/2 ‖λ‖²                          convex, with one minimum

By the representer theorem λ = Σ aₙ Jₙ, so the problem has N unknowns however large the bank is. The penalty
ρ = PULL · mean ‖Jₙ‖² / N falls as 1/N, and makes θ(λ) independent of the scale of the bank's vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.heads.base import UNUSED, Head

__all__ = ["Slopes", "solve"]

PULL = 2.0  # strength of the penalty
ITERATIONS = 100  # at most, of L-BFGS
MOST_TOWERS, MOST_WEIGHTS = 16, 1 << 25  # side by side, and in all of them together


class Slopes:
    """Margins of N images and their slopes at λ = 0, for R rows of labels (R N) with a head each."""

    def __init__(
        self,
        encoder: ComposedEncoder,
        views: Float[Tensor, "V N ..."],
        labels: Int[Tensor, "R N"],
        heads: Sequence[Head],
    ) -> None:
        """``views`` are inputs of the encoder; an image's margin is the mean over its views."""
        runs, count = labels.shape
        self._encoder, self._views, self._labels, self._heads = encoder, views, labels, heads
        self.margins = torch.zeros(runs, count)
        self.slopes = torch.zeros(runs, count, *encoder.composer.shape)

    def measure(self) -> Iterator[float]:
        """Measure all margins and slopes, several images per read of the bank. Yields the share done."""
        pairs = (self._labels != UNUSED).nonzero().tolist()
        zero = self._encoder.composer.initial()
        for start in range(0, len(pairs), self._at_once):
            # a tower of its own for each image, so that one read of the bank gives all gradients
            some = pairs[start : start + self._at_once]
            composition = self._encoder.at(zero.expand(len(some), *zero.shape).clone())
            for place, (run, image) in enumerate(some):
                features = composition.features(self._views[:, image], run=place)
                margin = _margin(self._heads[run].logits(features), int(self._labels[run, image])).mean()
                torch.autograd.backward(margin)
                self.margins[run, image] = margin.detach().cpu()
            for (run, image), slope in zip(some, composition.gradient().cpu(), strict=True):
                self.slopes[run, image] = slope
            yield min(1.0, (start + self._at_once) / len(pairs))

    @property
    def _at_once(self) -> int:
        """How many towers fit into memory side by side."""
        return max(1, min(MOST_TOWERS, MOST_WEIGHTS // max(1, self._encoder.composer.blocks.numel)))

    def coefficients(self) -> Float[Tensor, "R ..."]:
        """λ at the minimum for each row of labels."""
        rows = []
        for labels, margins, slopes in zip(self._labels.cpu(), self.margins, self.slopes, strict=True):
            used = labels != UNUSED
            lam = solve(margins[used], slopes[used].flatten(1))
            rows.append(lam.reshape(slopes.shape[1:]))
        return torch.stack(rows)


def solve(
    margins: Float[Tensor, " N"], slopes: Float[Tensor, "N P"], *, pull: float = PULL
) -> Float[Tensor, " P"]:
    """λ at the minimum, from margins and their slopes; 0 where all slopes are 0."""
    gram = slopes @ slopes.T  # (N N)
    mean_square = gram.diagonal().mean()  # mean ‖Jₙ‖²
    if not bool(mean_square > 0):
        return slopes.new_zeros(slopes.shape[1])
    # in units of the mean square, λ = Jᵀ a / mean ‖Jₙ‖² with a near 1
    gram, margins = (gram / mean_square).double(), margins.double()
    strength = pull / len(margins)
    with torch.inference_mode(False), torch.enable_grad():
        weights = torch.zeros_like(margins).requires_grad_()
        optimiser = torch.optim.LBFGS(
            [weights], max_iter=ITERATIONS, tolerance_change=1e-12, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimiser.zero_grad()
            change = gram @ weights  # ⟨Jₙ, λ⟩ of each image
            value = F.softplus(-(margins + change)).mean() + strength / 2 * weights @ change
            torch.autograd.backward(value)
            return value

        optimiser.step(loss)  # type: ignore[no-untyped-call]
    return slopes.T @ weights.detach().to(slopes.dtype) / mean_square


def _margin(logits: Float[Tensor, "B C"], label: int) -> Float[Tensor, " B"]:
    """The margin of the label's class against the others."""
    others = torch.cat([logits[:, :label], logits[:, label + 1 :]], dim=1)
    return logits[:, label] - others.logsumexp(dim=1)
