"""A composed tower under an adapter head, both learned at once. Knows nothing of losses or optimisers.

    heads = [Tip.start(evidence.without(fold == number)) for number in range(R)]
    subject = HeadedSubject(encoder, heads, start=composer.initial().expand(R, …))
    ending = learn(subject, …)                                   # λ as "lam", keys as "head.keys", …
    subject.head(ending.values, run=0).tensors                   # what a recipe keeps

Each run has a head of its own, so folds and seeds go side by side and read the bank once. A head is made from
zero-shot features, as in the paper's joint form: what it learns follows the tower from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from atlas_engine.adapt.subject import LAM, Forward, Learnable
from atlas_engine.compose.encoder import ComposedEncoder, Composition
from atlas_engine.errors import ConfigError
from atlas_engine.heads.base import Head
from atlas_engine.objectives.base import LogitsFn

__all__ = ["HEAD", "HeadedSubject"]

HEAD = "head."
"""What the names of a head's tensors begin with among the learned values."""


class HeadedSubject:
    """The coefficients λ of a composed image tower, and the tensors of a head for each run."""

    def __init__(self, encoder: ComposedEncoder, heads: Sequence[Head], *, start: Tensor) -> None:
        """``start`` is R free coefficients, (R …), for R heads of one kind over the same evidence."""
        if len(heads) != len(start):
            raise ConfigError(f"{len(start)} runs start with {len(heads)} heads. Give each run its own.")
        shapes = [{name: head.tensors[name].shape for name in head.rates} for head in heads]
        if any(shape != shapes[0] for shape in shapes):
            raise ConfigError(
                "the heads of the runs are of several kinds or sizes. Make all of one kind, from the same "
                "evidence with other rows held out (`Evidence.without`)."
            )
        self.encoder, self._heads, self._start = encoder, tuple(heads), start

    @property
    def learnables(self) -> Mapping[str, Learnable]:
        """λ, and what the heads want to have learned."""
        learnables = {LAM: Learnable(self._start)}
        for name, rate in self._heads[0].rates.items():
            learnables[HEAD + name] = Learnable(
                torch.stack([head.tensors[name] for head in self._heads]),
                lr_scale=rate.lr_scale,
                weight_decay=rate.weight_decay,
                normalise=rate.normalise,
            )
        return learnables

    def at(self, values: Mapping[str, Tensor]) -> Forward:
        """The tower at θ(λ) and the heads at their tensors; the bank is read here, once."""
        return _HeadedForward(self.encoder.at(values[LAM]), self._heads, _without_lam(values))

    def head(self, values: Mapping[str, Tensor], *, run: int = 0) -> Head:
        """One run's head at what was learned."""
        return self._heads[run].at({name: value[run] for name, value in _without_lam(values).items()})


class _HeadedForward:
    def __init__(self, composition: Composition, heads: Sequence[Head], values: Mapping[str, Tensor]) -> None:
        self._composition, self._heads, self._values = composition, heads, values
        self._leaves = [  # one set for each run, so that a run's backward touches its own alone
            {name: value[run].detach().clone().requires_grad_() for name, value in values.items()}
            for run in range(len(heads))
        ]

    def logits_fn(self, run: int) -> LogitsFn:
        head, leaves = self._heads[run], self._leaves[run]
        return lambda images: head.logits(self._composition.features(images, run=run), leaves)

    def gradients(self) -> Mapping[str, Tensor]:
        grads = {LAM: self._composition.gradient()}
        for name in self._values:
            leaves = [own[name] for own in self._leaves]
            grads[HEAD + name] = torch.stack(
                [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
            )
        return grads


def _without_lam(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(HEAD): value for name, value in values.items() if name.startswith(HEAD)}
