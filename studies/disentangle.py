"""Whether task vectors keep out of each other's way, two at a time.

    sittings = Sittings(Stage(engine, settings), folders, settings)
    for row, fresh in run_pairs(sittings, bank, ledger=Ledger()):
        row.cosine, row.error

Two vectors are disentangled where adding one leaves the answers for the other's pictures alone. For tasks t
and s with scaled vectors δ = Λ τ, and pred the class of the largest logit among the task's own,

    ξ = ½ Σ_{t, s} share of x in task t with pred(x; θ0 + δ_t) ≠ pred(x; θ0 + δ_t + δ_s)

(Ortiz-Jimenez et al., NeurIPS 2023, who leave out the ½). Λ is 1, or one number a vector, or one a block; the
last two are learned for both tasks at once (aTLAS, arXiv 2407.02880, section 4.1). Knows nothing of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from atlas_engine.adapt.trainable import LAM
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.compose.coefficients import Layout
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from studies.grid import Ledger, key_of
from studies.problems.few_shot import share_correct
from studies.problems.training_sets import TrainingSetSettings
from studies.tower_training import (
    StudyTask,
    StudyTasks,
    TowerTrainingSettings,
    predict_logits,
    vectors_made_from,
)

__all__ = ["SCALINGS", "DisentangleSettings", "PairRow", "own_vector_of", "run_pairs"]

AS_THEY_ARE, ISOTROPIC, ANISOTROPIC = "λ = 1", "isotropic", "anisotropic"
SCALINGS = (AS_THEY_ARE, ISOTROPIC, ANISOTROPIC)


@dataclass(frozen=True, kw_only=True)
class DisentangleSettings(TrainingSetSettings, TowerTrainingSettings):
    """Which training sets are drawn, and how long coefficients are learned from them."""

    max_train: int = setting(200, help="most pictures of a training set", low=2)
    partitions: tuple[int, ...] = setting((1, 5, 20, 80), help="parts K of each block", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "partitions", tuple(sorted(set(self.partitions))))  # frozen: only here


@dataclass(frozen=True)
class PairRow:
    """Two tasks and their own vectors, scaled in one way. Shares are means over both tasks."""

    first: str
    second: str
    scaling: str
    seed: int
    cosine: float  # of the scaled vectors
    error: float  # ξ
    alone: float  # accuracy with the task's own scaled vector
    accuracy: float  # … with both
    zero_shot: float

    @property
    def pair(self) -> str:
        """Both tasks in a word."""
        return f"{self.first} + {self.second}"

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return asdict(self)


def run_pairs(
    sittings: StudyTasks,
    bank: TaskVectorBank,
    *,
    ledger: Ledger,
    on_start: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[PairRow, bool]]:
    """Every two folders with vectors of their own, in every scaling, and whether each was measured now."""
    own = own_vector_of(bank, sittings.folders)
    for seed in range(sittings.settings.seeds):
        for first, second in combinations(own, 2):
            on_start(f"{first} + {second}, reading")
            two = sittings.at(first, seed), sittings.at(second, seed)
            pair = _Pair(*two, bank.select([own[first], own[second]]))
            for scaling in SCALINGS:
                on_start(f"{first} + {second}, {scaling}")
                yield pair.measured(scaling, ledger)


def own_vector_of(bank: TaskVectorBank, folders: Mapping[str, ClassFolder]) -> dict[str, str]:
    """The vector of each folder that has one in the bank."""
    found = {name: vectors_made_from(bank, folder) for name, folder in folders.items()}
    return {name: own[0] for name, own in found.items() if own}


class _Pair:
    def __init__(self, first: StudyTask, second: StudyTask, bank: TaskVectorBank) -> None:
        self.sittings, self.stage, self.seed = (first, second), first.stage, first.drawn.seed
        self.bank, self.identity = self.stage.donors(bank), (bank.fingerprint, bank.storage)

    def measured(self, scaling: str, ledger: Ledger) -> tuple[PairRow, bool]:
        digests = [sitting.digest for sitting in self.sittings]
        key = key_of("pair", self.stage.facts, digests, self.seed, self.identity, scaling)
        fields, fresh = ledger.once(key, lambda: self.row(scaling).as_dict())
        names = {"first": self.sittings[0].dataset, "second": self.sittings[1].dataset}
        return PairRow(**fields | names), fresh

    def row(self, scaling: str) -> PairRow:
        layout = Layout() if scaling == ANISOTROPIC else Layout("isotropic")
        lam = self._scales(scaling, layout)  # (2) or (2 M)
        by_both = [self._answers(layout, lam, place) for place in (0, 1)]
        by_own = [self._answers(layout, _only(lam, place), place) for place in (0, 1)]
        labels = [sitting.drawn.test.labels for sitting in self.sittings]
        first, second = self.sittings
        return PairRow(
            first=first.dataset,
            second=second.dataset,
            scaling=scaling,
            seed=self.seed,
            cosine=_cosine(self.bank, layout.expand(lam, self.bank.blocks)),
            error=fmean(_differ(*two) for two in zip(by_own, by_both, strict=True)),
            alone=fmean(share_correct(*two) for two in zip(by_own, labels, strict=True)),
            accuracy=fmean(share_correct(*two) for two in zip(by_both, labels, strict=True)),
            zero_shot=fmean(sitting.zero_shot for sitting in self.sittings),
        )

    def _scales(self, scaling: str, layout: Layout) -> Tensor:
        """Λ of both vectors: 1, or learned from the training pictures of both tasks."""
        if scaling == AS_THEY_ARE:
            return layout.initial(2, self.bank.blocks, value=1.0)
        first, second = self.sittings
        sizes = (len(first.text), len(second.text))
        subject = self.stage.mixture(self.bank, layout, torch.cat([first.text, second.text]))
        labels = torch.cat([first.drawn.train.labels, second.drawn.train.labels + sizes[0]])
        views = torch.cat([first.views, second.views], dim=1)
        return self.stage.learned_jointly(subject, views, labels, sizes=sizes, seed=self.seed)[LAM][0].cpu()

    def _answers(self, layout: Layout, lam: Tensor, place: int) -> Tensor:
        """The logits of one task's test pictures among its own classes, at Λ."""
        sitting = self.sittings[place]
        subject = self.stage.mixture(self.bank, layout, sitting.text)
        return predict_logits(subject, {LAM: lam.unsqueeze(0).to(self.bank.device)}, sitting.test)


def _only(lam: Tensor, place: int) -> Tensor:
    """Λ of one vector, and 0 for the other."""
    alone = torch.zeros_like(lam)
    alone[place] = lam[place]
    return alone


def _differ(one: Tensor, other: Tensor) -> float:
    """The share of pictures that are named differently."""
    return float((one.argmax(dim=1) != other.argmax(dim=1)).double().mean())


def _cosine(bank: TaskVectorBank, table: Tensor) -> float:
    """Of the two vectors scaled by λ (2 M); 0 where one is zero."""
    gram = torch.zeros(2, 2, dtype=torch.float64)
    for m, block in enumerate(bank.blocks):
        delta = table[:, m, None].double() * bank.vectors_of(block).cpu().double()  # (2 n)
        gram += delta @ delta.T
    scale = float(gram[0, 0] * gram[1, 1]) ** 0.5
    return float(gram[0, 1]) / scale if scale else 0.0
