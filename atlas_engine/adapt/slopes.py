"""Coefficients from the slopes of the margins at λ = 0: a first answer without training.

    mₙ     = logit of its class − log Σ exp(logits of the others)              the margin of image n, at λ = 0
    mₙ(λ)  ≈ mₙ + ⟨Jₙ, λ⟩,   Jₙ = ∂mₙ/∂λ                                       one backward pass an image
    λ      = argmin  mean softplus(−mₙ(λ)) + ρ/2 ‖λ‖²                          convex, with one minimum

By the representer theorem λ = Σ aₙ Jₙ, so the problem has N unknowns however large the bank is. ρ is PULL
times the mean ‖Jₙ‖² over N: the pull back to zero-shot falls as 1/N, and no unit of a bank or a model enters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.heads.base import UNUSED, Head

__all__ = ["Slopes", "solve"]

PULL = 2.0
ITERATIONS = 100
MOST, ROOM = 16, 1 << 25  # towers at a time, and weights of all of them together


class Slopes:
    """Margins of N images and their slopes at λ = 0, for R rows of labels (R N) with a head each."""

    def __init__(
        self, encoder: ComposedEncoder, views: Tensor, labels: Tensor, heads: Sequence[Head]
    ) -> None:
        """``views`` (V N …) is what the encoder takes; an image's margin is the mean over its views."""
        runs, count = labels.shape
        self._encoder, self._views, self._labels, self._heads = encoder, views, labels, heads
        self.margins = torch.zeros(runs, count)
        self.slopes = torch.zeros(runs, count, *encoder.composer.shape)

    def measure(self) -> Iterator[float]:
        """Measure them, a few images for each read of the bank; yields the share that is done."""
        pairs = (self._labels != UNUSED).nonzero().tolist()
        zero = self._encoder.composer.initial()
        for start in range(0, len(pairs), self._at_once):
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
        """How many towers fit side by side into a moderate memory."""
        return max(1, min(MOST, ROOM // max(1, self._encoder.composer.blocks.numel)))

    def coefficients(self) -> Tensor:
        """(R …): the minimum for each row of labels."""
        found = []
        for labels, margins, slopes in zip(self._labels.cpu(), self.margins, self.slopes, strict=True):
            used = labels != UNUSED
            flat = slopes[used].flatten(1)
            found.append(solve(margins[used], flat).reshape(slopes.shape[1:]))
        return torch.stack(found)


def solve(margins: Tensor, slopes: Tensor, *, pull: float = PULL) -> Tensor:
    """λ (P) from margins (N) and their slopes (N P); zero where nothing has a slope."""
    gram = slopes @ slopes.T  # (N N)
    size = gram.diagonal().mean()
    if not bool(size > 0):
        return slopes.new_zeros(slopes.shape[1])
    gram, margins = (gram / size).double(), margins.double()  # λ = Jᵀ a / size, with a of the order of 1
    strength = pull / len(margins)
    with torch.inference_mode(False), torch.enable_grad():
        weights = torch.zeros_like(margins).requires_grad_()
        optimiser = torch.optim.LBFGS(
            [weights], max_iter=ITERATIONS, tolerance_change=1e-12, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimiser.zero_grad()
            moved = gram @ weights
            value = F.softplus(-(margins + moved)).mean() + strength / 2 * weights @ moved
            torch.autograd.backward(value)
            return value

        optimiser.step(loss)  # type: ignore[no-untyped-call]
    return slopes.T @ weights.detach().to(slopes.dtype) / size


def _margin(logits: Tensor, label: int) -> Tensor:
    """(B C) -> (B)."""
    others = torch.cat([logits[:, :label], logits[:, label + 1 :]], dim=1)
    return logits[:, label] - others.logsumexp(dim=1)
