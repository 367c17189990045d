"""What each task vector of a bank is good for, alone and with the others: `atlas eval task-vectors`.

    trials = run_trials(engine, single_vector_variants(bank), folders, settings=settings, ledger=ledger)
    gain_grid([trial for trial, _ in trials])
    bank_geometry(bank).cosine[0][1], bank_geometry(bank).norms[0]

A vector alone has its coefficients learned from a few shots of a target, one a block; its gain is the
accuracy above zero-shot. `all` learns with every vector together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.views.coefficients import layer_name
from atlas_engine.views.heatmap import Grid
from studies.banks.trials import ALL, BankVariant, Trial, whole_bank_variant
from studies.grid import StudyRow
from studies.problems.few_shot import Problem
from studies.tables import MEAN, ResultTable, distinct, grid_values, seed_mean, where

__all__ = [
    "BankGeometry",
    "bank_geometry",
    "cosine_grid",
    "gain_grid",
    "norm_grid",
    "single_vector_variants",
    "target_table",
]


def single_vector_variants(bank: TaskVectorBank) -> list[BankVariant]:
    """Each vector alone, and then all of them. A vector keeps its trials in whatever bank it is."""
    alone = [_alone(bank, task, info.digest) for task, info in zip(bank.tasks, bank.infos, strict=True)]
    return [*alone, whole_bank_variant(bank)] if len(alone) > 1 else alone


def _alone(bank: TaskVectorBank, task: str, digest: str) -> BankVariant:
    def select(_: Problem) -> TaskVectorBank:
        return bank.select([task])

    return BankVariant(task, 1, (bank.base, task, digest, bank.storage), select)


@dataclass(frozen=True)
class BankGeometry(StudyRow):
    """Cosines between the vectors of a bank, and their norms by layer of the tower."""

    tasks: tuple[str, ...]
    layers: tuple[str, ...]
    cosine: tuple[tuple[float, ...], ...]  # (T T)
    norms: tuple[tuple[float, ...], ...]  # (T layers)


@torch.no_grad()
def bank_geometry(bank: TaskVectorBank) -> BankGeometry:
    """Cosines (T T) and norms (T layers) of the vectors. The cosine with a vector of zeros is 0.

    cosine[t, s] = ⟨τ_t, τ_s⟩ / ‖τ_t‖ ‖τ_s‖        norms[t, l] = √ Σ_{m in layer l} ‖τ[t, m]‖²
    """
    layers = sorted({block.layer for block in bank.blocks})
    gram = torch.zeros(len(layers), len(bank), len(bank), dtype=torch.float64)  # (layers T T)
    for block in bank.blocks:
        tau = bank.vectors_of(block).double().cpu()  # (T n)
        gram[layers.index(block.layer)] += tau @ tau.T
    whole = gram.sum(dim=0)
    lengths = whole.diagonal().sqrt()
    scale = torch.outer(lengths, lengths)
    cosine = torch.where(scale > 0, whole / scale.clamp_min(1e-300), 0.0)
    norms = gram.diagonal(dim1=1, dim2=2).T.sqrt()  # (T layers)
    return BankGeometry(bank.tasks, tuple(map(layer_name, layers)), _tuples(cosine), _tuples(norms))


def _tuples(matrix: torch.Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())


# ---- the report


def target_table(trials: Sequence[Trial]) -> ResultTable:
    """The targets, and what zero-shot gives there."""
    rows = []
    for target in distinct(trials, "target"):
        own = where(trials, target=target)
        zero_shot = seed_mean(own, lambda trial: trial.zero_shot)
        rows.append((target, own[0].classes, own[0].n_test, zero_shot.percent()))
    return ResultTable("Targets", rows, ("target", "classes", "test images", "zero-shot %"))


def gain_grid(trials: Sequence[Trial]) -> Grid:
    """Gain over zero-shot in points: task vectors × targets, and the mean over targets."""

    def points(own: Sequence[Trial]) -> float:
        return 100 * seed_mean(own, lambda trial: trial.gain).mean

    seeds = len({trial.seed for trial in trials})
    return Grid(
        "What each vector is good for",
        distinct(trials, "arm"),
        (*distinct(trials, "target"), MEAN),
        grid_values(trials, points, row="arm", column="target"),
        about=f"Accuracy above zero-shot in points: {trials[0].shots} shots, that vector alone "
        f"(“{ALL}”: every vector); mean of {seeds} seed(s).",
    )


def cosine_grid(geometry: BankGeometry) -> Grid:
    """The cosine of every two vectors."""
    return Grid(
        "How like each other the vectors are",
        geometry.tasks,
        geometry.tasks,
        geometry.cosine,
        number="+.2f",
        about="Cosine of two vectors over all blocks.",
        limit=1.0,
    )


def norm_grid(geometry: BankGeometry) -> Grid:
    """The norm of each vector in each layer."""
    return Grid(
        "Where each vector has its length",
        geometry.tasks,
        geometry.layers,
        geometry.norms,
        number=".2f",
        about="Norm of each vector in each layer of the image tower.",
    )
