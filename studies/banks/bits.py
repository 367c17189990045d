"""What a bank loses in fewer bits, in size, time, fidelity and few-shot accuracy: `atlas eval bits`.

    stored = store_in_formats(bank, ("float32", "int8"))
    run_trials(engine, storage_variants(stored), folders, settings=settings, ledger=ledger)
    measure_costs(engine, stored, problem, ledger=ledger)

Every format is made from the same float32 bank, learns the same problems, and is timed in turn with the
others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.edit import fidelity
from atlas_engine.compose.compose import Composer
from atlas_engine.engine import Atlas
from atlas_engine.errors import EvalError
from atlas_engine.runtime import generator
from studies.banks.selection import base_gradient
from studies.banks.trials import BankVariant, Trial, whole_bank_variant
from studies.grid import Ledger, StudyRow, key_of
from studies.problems.few_shot import Problem
from studies.speed.measure import compare
from studies.tables import MEAN, Mean, ResultTable, distinct, seed_mean, where

__all__ = [
    "ORIGINAL",
    "STORAGES",
    "StorageCost",
    "accuracy_loss",
    "bits_table",
    "cost_table",
    "measure_costs",
    "storage_variants",
    "store_in_formats",
]

ORIGINAL = "float32"
STORAGES = (ORIGINAL, "float16", "int8", "int4", "low-rank-64", "low-rank-16")


@dataclass(frozen=True)
class StorageCost(StudyRow):
    """One format: its size, the time of an optimiser step's two passes over the bank, and its fidelity."""

    storage: str
    nbytes: int
    seconds: float  # θ(λ) and ∂L/∂λ together, median
    time_ratio: float  # to float32, in the same run
    cosine: float  # to float32, mean over vectors
    relative_error: float  # mean over vectors
    gradient_cosine: float  # ∂L/∂λ at zero-shot to that in float32, on a real problem


def store_in_formats(bank: TaskVectorBank, storages: Sequence[str] = STORAGES) -> dict[str, TaskVectorBank]:
    """The bank in each format, float32 first; it must be the float32 original."""
    if bank.storage != ORIGINAL:
        raise EvalError(
            f"this bank is stored as {bank.storage}, and what that lost cannot be seen any more. "
            f"Give the {ORIGINAL} bank that it was made from."
        )
    return {name: bank.stored_as(name) for name in dict.fromkeys((ORIGINAL, *storages))}


def storage_variants(stored: Mapping[str, TaskVectorBank]) -> list[BankVariant]:
    """All vectors together, in each format."""
    return [whole_bank_variant(bank, name=name) for name, bank in stored.items()]


def measure_costs(
    engine: Atlas,
    stored: Mapping[str, TaskVectorBank],
    problem: Problem,
    *,
    ledger: Ledger,
    repeat: int = 9,
) -> list[StorageCost]:
    """A row for each format. They are timed together, so either all are in the ledger or all are measured."""
    facts = (problem.digest, sorted(stored))
    keys = {name: key_of("costs", bank.fingerprint, name, *facts) for name, bank in stored.items()}
    known = {name: ledger.get(key) for name, key in keys.items()}
    if not all(known.values()):
        found = _compare_formats(engine, stored, problem, repeat=repeat)
        known = {cost.storage: ledger.put(keys[cost.storage], cost.as_dict()) for cost in found}
    return [StorageCost(**row) for row in known.values() if row is not None]


def _compare_formats(
    engine: Atlas, stored: Mapping[str, TaskVectorBank], problem: Problem, *, repeat: int
) -> list[StorageCost]:
    original = stored[ORIGINAL]
    gradients = _coefficient_gradients(engine, stored, problem)
    times = compare(
        {name: _timed_step(engine, bank) for name, bank in stored.items()}, check=math.isfinite, repeat=repeat
    )
    rows = []
    for name, bank in stored.items():
        near = fidelity(original, bank).values()
        rows.append(
            StorageCost(
                storage=name,
                nbytes=bank.nbytes,
                seconds=times.timings[name].median_seconds,
                time_ratio=times.ratio(name, ORIGINAL),
                cosine=statistics.fmean(one.cosine for one in near),
                relative_error=statistics.fmean(one.relative_error for one in near),
                gradient_cosine=float(torch.cosine_similarity(gradients[name], gradients[ORIGINAL], dim=0)),
            )
        )
    return rows


def _coefficient_gradients(
    engine: Atlas, stored: Mapping[str, TaskVectorBank], problem: Problem
) -> dict[str, Tensor]:
    """∂L/∂λ at λ = 0 in each format, flat (T·M)."""
    theta0, grads = dict(engine.backbone.visual.named_parameters()), base_gradient(engine, problem)
    return {name: Composer(theta0, bank).gradient(grads).flatten().double() for name, bank in stored.items()}


def _timed_step(engine: Atlas, bank: TaskVectorBank) -> Callable[[], float]:
    """θ(λ) and ∂L/∂λ once, for coefficients and gradients that are the same in every format."""
    composer = Composer(dict(engine.backbone.visual.named_parameters()), bank)
    draw = generator(0)
    lam = (0.1 * torch.randn(composer.shape, generator=draw)).to(bank.device)
    theta, grads = composer.buffers(), composer.buffers()
    grads.flat.copy_(torch.randn(grads.flat.shape, generator=draw))

    def step() -> float:
        composer.compose(lam, into=theta)
        return float(composer.gradient(grads).sum())

    return step


# ---- the report


def accuracy_loss(trials: Sequence[Trial], storage: str) -> Mean:
    """Accuracy in a format less that in float32 on the same problems: below 0 is a loss."""
    original = {(trial.target, trial.seed): trial.accuracy for trial in trials if trial.arm == ORIGINAL}
    own = where(trials, arm=storage)
    return seed_mean(own, lambda trial: trial.accuracy - original[trial.target, trial.seed])


def cost_table(costs: Sequence[StorageCost]) -> ResultTable:
    """Size, time and fidelity, a row a format; the first is what the others are compared with."""
    rows = [
        (
            one.storage,
            f"{one.nbytes / 2**20:.1f}",
            f"{one.nbytes / costs[0].nbytes:.2f}",
            f"{1e3 * one.seconds:.1f}",
            f"{one.time_ratio:.2f}",
            f"{one.cosine:.5f}",
            f"{100 * one.relative_error:.2f}",
            f"{one.gradient_cosine:.5f}",
        )
        for one in costs
    ]
    columns = (
        "storage",
        "MiB",
        "size ratio",
        "compose + gradient, ms",
        "time ratio",
        "cosine",
        "error %",
        "cosine of ∂L/∂λ",
    )
    return ResultTable("What a format costs", rows, columns)


def bits_table(trials: Sequence[Trial]) -> ResultTable:
    """Accuracy in each format on each target, and the difference to float32 on the same problems."""
    targets, storages = distinct(trials, "target"), distinct(trials, "arm")
    rows = [
        (
            name,
            *(seed_mean(where(trials, arm=name, target=target)).percent() for target in targets),
            seed_mean(where(trials, arm=name)).percent(),
            accuracy_loss(trials, name).percent(sign=True),
        )
        for name in storages
    ]
    zero_shot = [seed_mean(where(trials, target=target), _zero_shot).percent() for target in targets]
    rows.append(("zero-shot", *zero_shot, seed_mean(trials, _zero_shot).percent(), "–"))
    title = f"Accuracy in %, {trials[0].shots} shots, all vectors"
    return ResultTable(title, rows, ("storage", *targets, MEAN, "against float32"))


def _zero_shot(trial: Trial) -> float:
    return trial.zero_shot
