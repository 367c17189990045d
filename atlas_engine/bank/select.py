"""Which vectors to use if only b of them may be: at random, by features, or by gradient.

    select_by_features(bank, mean_feature, budget=5)       cosine to each data set's stored centroid
    select_by_gradient(bank, grads, budget=5)              Σ_m |∂L/∂λ[t, m]| at λ = 0
    mix_by_gradient(bank, grads, budget=5)                 per block the b best, as b mixed vectors
    mix_tasks(bank, positions)                             the mix of given tasks, block by block

Gradients are ∂L/∂θ at the base model, by block name. A source is a resident bank or a `BankFile`, which is
read block by block: the bank never has to fit the device, and it is read once. (aTLAS, arXiv 2407.02880,
section 5; per block wins at every small b.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import BlockTable
from atlas_engine.bank.panels import Panel
from atlas_engine.bank.storage import bundle_small_blocks
from atlas_engine.bank.vector import VectorInfo
from atlas_engine.errors import BankError

__all__ = [
    "MixedBank",
    "VectorSource",
    "feature_scores",
    "gradient_scores",
    "mix_by_gradient",
    "mix_tasks",
    "select_by_features",
    "select_by_gradient",
    "select_random",
]


class VectorSource(Protocol):
    """Anything that gives its vectors block by block: a `TaskVectorBank` or a `BankFile`."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the vectors."""

    @property
    def infos(self) -> tuple[VectorInfo, ...]:
        """What is known of each."""

    @property
    def blocks(self) -> BlockTable:
        """What they are made of."""

    @property
    def base(self) -> str:
        """Fingerprint of their base."""

    @property
    def storage(self) -> str:
        """Their format."""

    @property
    def kind(self) -> str:
        """How they were made."""

    def iter_panels(self) -> Iterator[Panel]:
        """One panel per block."""


@dataclass(frozen=True)
class MixedBank:
    """A bank of b mixed vectors, and for every block which task each of them was taken from, (b, M) names."""

    bank: TaskVectorBank
    origin: tuple[tuple[str, ...], ...]


def select_random(source: VectorSource, *, budget: int, seed: int) -> tuple[str, ...]:
    """b names drawn without replacement."""
    b = _check_budget(budget, source)
    order = torch.randperm(len(source.tasks), generator=torch.Generator().manual_seed(seed))
    return tuple(source.tasks[t] for t in order[:b].tolist())


def select_by_features(source: VectorSource, feature: Tensor, *, budget: int) -> tuple[str, ...]:
    """The b vectors whose data sets look most like ours, nearest first: cosine of mean zero-shot features."""
    b = _check_budget(budget, source)
    return _best(source.tasks, feature_scores(source, feature), b)


def feature_scores(source: VectorSource, feature: Tensor) -> Tensor:
    """Cosine of each data set's centroid and a mean zero-shot feature (D), as (T) on the CPU.

    Centroids are part of a bank's header: no vector is read.
    """
    without = [task for task, info in zip(source.tasks, source.infos, strict=True) if not info.centroid]
    if without:
        raise BankError(
            f"no feature centroid is stored for {', '.join(without)}. Select by gradient instead."
        )
    widths = {len(info.centroid) for info in source.infos}
    if widths != {feature.numel()}:
        raise BankError(f"the feature has {feature.numel()} numbers but the centroids {sorted(widths)}.")
    centroids = torch.tensor([info.centroid for info in source.infos])
    return torch.nn.functional.cosine_similarity(centroids, feature.detach().cpu().float().view(1, -1))


def select_by_gradient(source: VectorSource, grads: Mapping[str, Tensor], *, budget: int) -> tuple[str, ...]:
    """The b vectors with the largest Σ_m |∂L/∂λ[t, m]| at the base, best first."""
    b = _check_budget(budget, source)
    return _best(source.tasks, gradient_scores(source, grads).sum(1), b)


def gradient_scores(source: VectorSource, grads: Mapping[str, Tensor]) -> Tensor:
    """|∂L/∂λ[t, m]| for every task and block, (T M) on the CPU. Reads the source once."""
    scores = torch.zeros(len(source.tasks), len(source.blocks))
    for panel in source.iter_panels():
        scores[:, panel.block_indices[0]] = _block_scores(panel, source.blocks, grads).cpu()
    return scores


def mix_by_gradient(source: VectorSource, grads: Mapping[str, Tensor], *, budget: int) -> MixedBank:
    """b mixed vectors: in every block, the i-th is the task with the i-th largest |∂L/∂λ| there.

    The source is read once and only b of T are kept. The mixed bank is on the device of the gradients.
    """
    b = _check_budget(budget, source)
    origin: list[tuple[str, ...]] = [()] * len(source.blocks)
    panels: list[Panel] = []
    for panel in source.iter_panels():
        m = panel.block_indices[0]
        rows = _block_scores(panel, source.blocks, grads).topk(b).indices.tolist()
        origin[m] = tuple(source.tasks[t] for t in rows)
        panels.append(panel.select_tasks(rows).to(grads[source.blocks[m].name].device))
    return _mixed_bank(source, panels, origin)


def mix_tasks(bank: TaskVectorBank, positions: Sequence[Sequence[int]]) -> MixedBank:
    """b mixed vectors whose blocks come from given tasks: `positions` (M b) in the bank, block by block."""
    panels = [bank.block_panel(m, chosen).to(bank.device) for m, chosen in enumerate(positions)]
    return _mixed_bank(bank, panels, [tuple(bank.tasks[t] for t in chosen) for chosen in positions])


def _mixed_bank(
    source: VectorSource, panels: Sequence[Panel], origin: Sequence[tuple[str, ...]]
) -> MixedBank:
    """The bank of one panel per block, with b tasks each; `origin` (M b) names where they are from."""
    columns = tuple(zip(*origin, strict=True))
    bank = TaskVectorBank(
        bundle_small_blocks(panels, source.blocks),
        tasks=[f"mix-{i + 1}" for i in range(len(columns))],
        blocks=source.blocks,
        base=source.base,
        infos=[_mixed_info(source, column) for column in columns],
        storage=source.storage,
    )
    return MixedBank(bank, columns)


def _mixed_info(source: VectorSource, origin: Sequence[str]) -> VectorInfo:
    """The info of a mixed vector; its digest is of the vectors it was taken from, block by block."""
    digests = {task: info.digest for task, info in zip(source.tasks, source.infos, strict=True)}
    text = "\n".join(f"{task} {digests[task]}" for task in origin)
    used = ", ".join(sorted(set(origin)))
    return VectorInfo(
        provenance={"mixed from": used}, digest=hashlib.sha256(text.encode()).hexdigest(), kind=source.kind
    )


@torch.no_grad()
def _block_scores(panel: Panel, blocks: BlockTable, grads: Mapping[str, Tensor]) -> Tensor:
    """|∂L/∂λ[t]| of one block for every task, (T)."""
    name = blocks[panel.block_indices[0]].name
    if name not in grads:
        raise BankError(f"no gradient was given for block '{name}'. Pass ∂L/∂θ of every block.")
    g = grads[name].detach().to(panel.device, torch.float32).reshape(1, -1)
    return panel.inner(g)[0, :, 0].abs()


def _best(tasks: Sequence[str], scores: Tensor, b: int) -> tuple[str, ...]:
    """The names of the b largest scores, best first; ties stay in the bank's order."""
    return tuple(tasks[t] for t in scores.argsort(descending=True, stable=True)[:b].tolist())


def _check_budget(budget: int, source: VectorSource) -> int:
    """The budget, if the source has that many vectors."""
    if not 1 <= budget <= len(source.tasks):
        raise BankError(
            f"budget={budget} is out of range. The bank has {len(source.tasks)} vectors; pass 1 to that."
        )
    return budget
