"""Whether two task vectors disturb each other: `atlas eval disentangle`.

    tasks = StudyTasks(TowerTrainer(engine, settings), folders, settings)
    for row, fresh in run_pairs(tasks, bank, ledger=Ledger()):
        row.cosine, row.error

Two vectors are disentangled where adding one does not change the predictions for the other's images. For
tasks t and s with scaled vectors δ = Λ τ, and pred the class of the largest logit among the task's own,

    ξ = ½ Σ_{t, s} share of x in task t with pred(x; θ0 + δ_t) ≠ pred(x; θ0 + δ_t + δ_s)

(Ortiz-Jimenez et al., NeurIPS 2023, who leave out the ½). Λ is 1, or one number a vector, or one a block; the
last two are learned for both tasks at once (aTLAS, arXiv 2407.02880, section 4.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import torch
from torch import Tensor

from atlas_engine.adapt.trainable import LAM
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.compose.coefficients import SPLITS, Layout
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.views.heatmap import Grid
from studies.grid import Cell, Ledger, OnStart, StudyRow, ignore_note, run_grid
from studies.problems.few_shot import share_correct
from studies.problems.training_sets import TrainingSetSettings
from studies.tables import Mean, ResultTable, distinct, seed_mean, where
from studies.tower_training import (
    StudyTask,
    StudyTasks,
    TowerTrainingSettings,
    predict_logits,
    vectors_made_from,
)

__all__ = [
    "SCALINGS",
    "DisentangleSettings",
    "PairRow",
    "error_grid",
    "own_vector_of",
    "pair_tables",
    "run_pairs",
]

UNSCALED, ISOTROPIC, ANISOTROPIC = "λ = 1", "isotropic", "anisotropic"
SCALINGS = (UNSCALED, ISOTROPIC, ANISOTROPIC)


@dataclass(frozen=True, kw_only=True)
class DisentangleSettings(TrainingSetSettings, TowerTrainingSettings):
    """Which training sets are drawn, and how long coefficients are learned from them."""

    max_train: int = setting(200, help="most images of a training set", low=2)
    partitions: tuple[int, ...] = setting((1, 5, 20, 80), help="parts K of each block", low=1)
    split_by: str = setting("entries", help="what the parts of a block are made of", choices=SPLITS)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "partitions", tuple(sorted(set(self.partitions))))  # frozen: only here


@dataclass(frozen=True)
class PairRow(StudyRow):
    """Two tasks and their own vectors under one scaling. Shares are means over both tasks."""

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
        """Both names."""
        return _pair_name(self.first, self.second)


def run_pairs(
    tasks: StudyTasks, bank: TaskVectorBank, *, ledger: Ledger, on_start: OnStart = ignore_note
) -> Iterator[tuple[PairRow, bool]]:
    """Every two folders with vectors of their own under every scaling, and whether it was measured now."""
    own = own_vector_of(bank, tasks.folders)

    def cells_of(_: str, names: tuple[str, str], seed: int) -> Iterator[Cell[PairRow]]:
        first, second = names
        pair = _Pair(
            tasks.draw(first, seed), tasks.draw(second, seed), bank.select([own[first], own[second]])
        )
        for scaling in SCALINGS:
            yield pair.cell(scaling)

    pairs = {_pair_name(*names): names for names in combinations(own, 2)}
    return run_grid(pairs, cells_of, seeds=tasks.settings.seeds, ledger=ledger, on_start=on_start)


def own_vector_of(bank: TaskVectorBank, folders: Mapping[str, ClassFolder]) -> dict[str, str]:
    """The vector made from each folder, for the folders that have one in the bank."""
    found = {name: vectors_made_from(bank, folder) for name, folder in folders.items()}
    return {name: own[0] for name, own in found.items() if own}


class _Pair:
    """Two tasks and a bank of their two vectors."""

    def __init__(self, first: StudyTask, second: StudyTask, bank: TaskVectorBank) -> None:
        self.tasks, self.trainer, self.seed = (first, second), first.trainer, first.drawn.seed
        self.bank, self.identity = self.trainer.restrict(bank), (bank.fingerprint, bank.storage)

    def cell(self, scaling: str) -> Cell[PairRow]:
        first, second = (task.dataset for task in self.tasks)
        digests = [task.digest for task in self.tasks]
        return Cell(
            f"{_pair_name(first, second)}, {scaling}",
            ("pair", self.trainer.facts, digests, self.seed, self.identity, scaling),
            lambda: self.measure(scaling).as_dict(),
            PairRow,
            {"first": first, "second": second},
        )

    def measure(self, scaling: str) -> PairRow:
        layout = Layout() if scaling == ANISOTROPIC else Layout("isotropic")
        lam = self._scales(scaling, layout)  # (2) or (2 M)
        # logits of each task's test images, with both vectors and with its own alone
        by_both = [self._logits(layout, lam, t) for t in (0, 1)]
        by_own = [self._logits(layout, _keep_only(lam, t), t) for t in (0, 1)]
        labels = [task.drawn.test.labels for task in self.tasks]
        first, second = self.tasks
        return PairRow(
            first=first.dataset,
            second=second.dataset,
            scaling=scaling,
            seed=self.seed,
            cosine=_cosine(self.bank, layout.expand(lam, self.bank.blocks)),
            error=fmean(_share_changed(*two) for two in zip(by_own, by_both, strict=True)),
            alone=fmean(share_correct(*two) for two in zip(by_own, labels, strict=True)),
            accuracy=fmean(share_correct(*two) for two in zip(by_both, labels, strict=True)),
            zero_shot=fmean(task.zero_shot for task in self.tasks),
        )

    def _scales(self, scaling: str, layout: Layout) -> Tensor:
        """Λ of both vectors, (2) or (2 M): 1, or learned from the training images of both tasks."""
        if scaling == UNSCALED:
            return layout.initial(2, self.bank.blocks, value=1.0)
        first, second = self.tasks
        sizes = (len(first.text), len(second.text))
        trainable = self.trainer.coefficients(self.bank, layout, torch.cat([first.text, second.text]))
        labels = torch.cat([first.drawn.train.labels, second.drawn.train.labels + sizes[0]])
        views = torch.cat([first.views, second.views], dim=1)
        values = self.trainer.train_jointly(trainable, views, labels, sizes=sizes, seed=self.seed)
        return values[LAM][0].cpu()

    def _logits(self, layout: Layout, lam: Tensor, t: int) -> Tensor:
        """The logits (N C) of task t's test images among its own classes, at Λ."""
        task = self.tasks[t]
        trainable = self.trainer.coefficients(self.bank, layout, task.text)
        return predict_logits(trainable, {LAM: lam.unsqueeze(0).to(self.bank.device)}, task.test)


def _keep_only(lam: Tensor, t: int) -> Tensor:
    """Λ with zeros for the vector that is not t."""
    alone = torch.zeros_like(lam)
    alone[t] = lam[t]
    return alone


def _share_changed(one: Tensor, other: Tensor) -> float:
    """The share of images whose predicted class differs between two sets of logits (N C)."""
    return float((one.argmax(dim=1) != other.argmax(dim=1)).double().mean())


def _cosine(bank: TaskVectorBank, table: Tensor) -> float:
    """The cosine of the two vectors scaled by λ (2 M); 0 where one is zero."""
    gram = torch.zeros(2, 2, dtype=torch.float64)
    for m, block in enumerate(bank.blocks):
        delta = table[:, m, None].double() * bank.vectors_of(block).cpu().double()  # (2 n)
        gram += delta @ delta.T
    scale = float(gram[0, 0] * gram[1, 1]) ** 0.5
    return float(gram[0, 1]) / scale if scale else 0.0


def _pair_name(first: str, second: str) -> str:
    return f"{first} + {second}"


# ---- the report


def pair_tables(rows: Sequence[PairRow]) -> list[ResultTable]:
    """Each scaling over all pairs, then ξ and cosine of each pair; nothing where there is no pair."""
    if not rows:
        return []
    lines = []
    for scaling in distinct(rows, "scaling"):
        own = where(rows, scaling=scaling)
        cosine, error = _cosine_text(own), seed_mean(own, _error).percent()
        alone, both = seed_mean(own, lambda row: row.alone).percent(), seed_mean(own).percent()
        lines.append((scaling, cosine, error, alone, both))
    zero_shot = seed_mean(rows, lambda row: row.zero_shot).percent()
    title = f"Two vectors at once, mean over {len(distinct(rows, 'pair'))} pair(s) (zero-shot {zero_shot} %)"
    columns = ("scaling", "cosine", "error ξ %", "own vector alone %", "both %")
    return [ResultTable(title, lines, columns), _each_pair_table(rows)]


def _each_pair_table(rows: Sequence[PairRow]) -> ResultTable:
    scalings = distinct(rows, "scaling")
    lines = []
    for pair in distinct(rows, "pair"):
        by_scaling = [where(rows, pair=pair, scaling=scaling) for scaling in scalings]
        errors = (seed_mean(own, _error).percent() for own in by_scaling)
        lines.append((pair, *map(_cosine_text, by_scaling), *errors))
    columns = ("pair", *(f"cosine, {name}" for name in scalings), *(f"ξ %, {name}" for name in scalings))
    return ResultTable("Each pair", lines, columns)


def error_grid(rows: Sequence[PairRow]) -> Grid:
    """ξ in % of every pair under every scaling."""
    pairs, scalings = distinct(rows, "pair"), distinct(rows, "scaling")
    values = tuple(
        tuple(100 * seed_mean(where(rows, pair=pair, scaling=name), _error).mean for name in scalings)
        for pair in pairs
    )
    about = "Share of images in % whose answer another task's vector changes (ξ), by how vectors are scaled."
    return Grid("How much vectors disturb each other", pairs, scalings, values, number=".1f", about=about)


def _error(row: PairRow) -> float:
    return row.error


def _cosine_text(rows: Sequence[PairRow]) -> str:
    mean: Mean = seed_mean(rows, lambda row: row.cosine)
    return f"{mean.mean:+.3f}" if mean.spread is None else f"{mean.mean:+.3f} ± {mean.spread:.3f}"
