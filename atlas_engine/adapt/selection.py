"""Selection under a budget: the b task vectors that a run may use, chosen for its images.

    chosen = select_for_support(part, activations, text, labels, budget=8, select="gradient")
    part.use(chosen)                              # from here on the run learns λ of b vectors
    chosen.restore(coefficients)                  # λ of the whole bank, 0 where nothing was chosen

`gradient` takes one pass of cross-entropy at λ = 0 and keeps, in every block, the b vectors with the largest
|∂L/∂λ|; a chosen vector is then a mix, with blocks of several tasks. `features` keeps the b vectors whose
data sets look most like the images, by their mean zero-shot features; it needs no labels. (aTLAS, arXiv
2407.02880, section 5: per block is the best at every small b.)

Of a large bank, `gradient` reads a short list only: the `SHORTLIST` vectors (twice the budget, if that is
more) that `features` ranks first, by centroids in the bank's header. So a run with a budget reads as much of
500 vectors as of 32. The short list is the same wherever the vectors are, in memory or on disk; where they
are on disk it is read while the gradient is computed, and the next in rank while the run learns. A bank that
lacks centroids has no short list: its vectors are all read. What the short list loses is in
`assets/bench/SCALE.md`.

A recipe holds λ of the bank's own tasks, so it rebuilds with the whole bank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.adapt.streamed_activations import Activations, split_activations
from atlas_engine.adapt.trainable_part import IMAGES_AT_ONCE, TrainablePart
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.select import feature_scores, mix_by_gradient
from atlas_engine.bank.vector import VectorInfo
from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.compose.gradient_scale import GradientScale
from atlas_engine.config import Settings, setting
from atlas_engine.errors import BankError
from atlas_engine.recipe import Json
from atlas_engine.runtime import frozen_copy

__all__ = [
    "SELECTIONS",
    "SelectedVectors",
    "SelectionConfig",
    "VectorBudget",
    "select_for_support",
    "select_unlabelled",
    "shortlist_size",
]

SELECTIONS = ("gradient", "features")

SHORTLIST = 32
"""Vectors whose gradients are compared, at least, where a bank has more."""


@dataclass(frozen=True, kw_only=True)
class VectorBudget(Settings):
    """How many task vectors a run may use."""

    budget: int | None = setting(
        None, help="most task vectors to use, chosen for the images; all if unset", low=1
    )

    def limits(self, bank: TaskVectorBank) -> bool:
        """Whether some of the bank's vectors must be left out."""
        return self.budget is not None and self.budget < len(bank)

    def facts(self, bank: TaskVectorBank) -> dict[str, Json]:
        """What a recipe records of it: nothing where all vectors may be used."""
        return self.as_dict() if self.limits(bank) else {}


@dataclass(frozen=True, kw_only=True)
class SelectionConfig(VectorBudget):
    """How many task vectors a run may use, and how they are chosen."""

    select: str = setting(
        "gradient",
        help="how a budget is spent: on the vectors that change the loss most, block by block, or on those "
        "of similar images",
        choices=SELECTIONS,
    )


@dataclass(frozen=True, eq=False)
class SelectedVectors:
    """b vectors over the trainable blocks, and the task of the whole bank that each block was taken from."""

    bank: TaskVectorBank
    rows: Int[Tensor, "b M"]
    tasks: tuple[str, ...]  # of the whole bank

    def restore(self, learned: Coefficients) -> Coefficients:
        """λ per block of all T tasks of the whole bank, (T, M) or (T, M, K); 0 where nothing was chosen."""
        table = learned.table  # (b M) or (b M K)
        rows = self.rows.to(table.device).reshape(*self.rows.shape, *[1] * (table.ndim - 2)).expand_as(table)
        # within a block the b rows differ, so no coefficient is written twice
        values = table.new_zeros(len(self.tasks), *table.shape[1:]).scatter(0, rows, table)
        return Coefficients(values, replace(learned.layout, granularity="block"), self.tasks, learned.blocks)


def select_for_support(
    part: TrainablePart,
    activations: Activations,
    text: Float[Tensor, "C D"],
    labels: Int[Tensor, " N"],
    *,
    budget: int,
    select: str,
) -> SelectedVectors:
    """The b vectors for labelled images, given by their activations (N …) behind the frozen prefix."""
    if select == "features":
        return _select_by_features(part, activations, dim=text.shape[1], budget=budget)
    bank = part.trainable_bank()
    count = shortlist_size(len(bank), budget=budget)
    ranked = bank.tasks
    if count < len(bank) and not _tasks_without_centroid(bank.tasks, bank.infos):
        ranked = _rank_by_features(part, bank, activations, dim=text.shape[1])
        bank.prefetch(ranked[:count])
        shortlist = bank.select(ranked[:count])
    else:
        shortlist = bank
    mixed = mix_by_gradient(shortlist, _base_gradient(part, bank, activations, text, labels), budget=budget)
    bank.hold(mixed.bank, {task for row in mixed.origin for task in row})
    if shortlist is not bank:
        bank.prefetch(ranked[count : 2 * count])
    return SelectedVectors(mixed.bank, _positions(mixed.origin, bank.tasks), bank.tasks)


def shortlist_size(vectors: int, *, budget: int) -> int:
    """How many of a bank's vectors gradient selection reads.

    >>> shortlist_size(500, budget=8), shortlist_size(500, budget=40), shortlist_size(19, budget=8)
    (32, 80, 19)
    """
    return min(vectors, max(SHORTLIST, 2 * budget))


def select_unlabelled(
    part: TrainablePart, activations: Activations, text: Float[Tensor, "C D"], *, budget: int
) -> SelectedVectors:
    """The b vectors for images without labels, by features."""
    lacking = _tasks_without_centroid(part.bank.tasks, part.bank.infos)
    if lacking:
        raise BankError(
            f"the bank has no feature centroid of {', '.join(lacking[:5])}, and without labels a budget is "
            "spent by centroids. Leave the budget out, or make the vectors with `atlas bank train`, which "
            "stores them."
        )
    return _select_by_features(part, activations, dim=text.shape[1], budget=budget)


def _select_by_features(
    part: TrainablePart, activations: Activations, *, dim: int, budget: int
) -> SelectedVectors:
    bank = part.trainable_bank()
    names = _rank_by_features(part, bank, activations, dim=dim)[:budget]
    origin = [[name] * len(bank.blocks) for name in names]
    chosen = bank.extract(names).to(activations.device)
    return SelectedVectors(chosen, _positions(origin, bank.tasks), bank.tasks)


def _rank_by_features(
    part: TrainablePart, bank: TaskVectorBank, activations: Activations, *, dim: int
) -> tuple[str, ...]:
    """The bank's tasks, those first whose data sets look most like the images; the bank notes the scores."""
    features = F.normalize(part.features(activations)[:, :dim], dim=-1)  # the projected ones come first
    scores = feature_scores(bank, features.mean(dim=0))
    bank.rate(dict(zip(bank.tasks, scores.tolist(), strict=True)))
    return tuple(bank.tasks[t] for t in scores.argsort(descending=True, stable=True).tolist())


def _base_gradient(
    part: TrainablePart, bank: TaskVectorBank, activations: Activations, text: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """∂L/∂θ of the trainable blocks at λ = 0, for the zero-shot cross-entropy of the images as they are."""
    tower = frozen_copy(part.tower)  # over the same tensors, with gradients of its own
    known = dict(tower.named_parameters())
    leaves = {name: known[name].requires_grad_() for name in bank.blocks.names}
    gradients = GradientScale()
    with torch.inference_mode(False), torch.enable_grad():
        batches = zip(
            split_activations(activations, IMAGES_AT_ONCE),
            torch.split(labels, IMAGES_AT_ONCE),
            strict=True,
        )
        for images, own in batches:
            features = F.normalize(gradients.enter(part.run_tower(tower, images)), dim=-1)
            head, scale = part.zero_shot_head(text, features.shape[1])
            loss = F.cross_entropy(scale * features @ head.T, own, reduction="sum") / len(labels)
            torch.autograd.backward(loss)
    return {
        name: gradients.leave(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)
        for name, leaf in leaves.items()
    }


def _positions(origin: Sequence[Sequence[str]], tasks: Sequence[str]) -> Int[Tensor, "b M"]:
    """Names as positions in the bank."""
    index = {task: t for t, task in enumerate(tasks)}
    return torch.tensor([[index[task] for task in row] for row in origin])


def _tasks_without_centroid(tasks: Sequence[str], infos: Sequence[VectorInfo]) -> list[str]:
    return [task for task, info in zip(tasks, infos, strict=True) if not info.centroid]
