"""What a bank loses in fewer bits: bytes, time, nearness to float32, few-shot accuracy.

    stored = in_storages(bank, ("float32", "int8"))
    for trial, fresh in run_trials(engine, bit_arms(stored), folders, settings=settings, ledger=ledger): ...
    costs(engine, stored, problem, ledger=ledger)

Every format is made from the same float32 bank, learns the same problems, and is timed in turn with the
others. Knows nothing of tables.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.edit import compress, fidelity
from atlas_engine.compose.compose import Composer
from atlas_engine.engine import Atlas
from atlas_engine.errors import EvalError
from atlas_engine.runtime import generator
from studies.banks.selection import base_gradient
from studies.banks.task_vectors import whole_bank_variant
from studies.banks.trials import BankVariant, Trial
from studies.grid import Ledger, key_of
from studies.problems.few_shot import Problem
from studies.speed.measure import compare
from studies.tables import Mean, seed_mean

__all__ = ["ORIGINAL", "STORAGES", "StorageCost", "accuracy_loss", "measure_costs", "storage_variants", "store_in_formats"]

ORIGINAL = "float32"
STORAGES = (ORIGINAL, "float16", "int8", "int4", "low-rank-64", "low-rank-16")


@dataclass(frozen=True)
class StorageCost:
    """One format: its bytes, an optimiser step's two readings of the bank, and how true it is to float32."""

    storage: str
    nbytes: int
    seconds: float  # θ(λ) and ∂L/∂λ together, median
    time_ratio: float  # to float32, in the same run
    cosine: float  # mean over vectors
    relative_error: float  # mean over vectors
    gradient_cosine: float  # ∂L/∂λ at zero-shot to that in float32, on a real problem

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return asdict(self)


def store_in_formats(bank: TaskVectorBank, storages: Sequence[str] = STORAGES) -> dict[str, TaskVectorBank]:
    """The bank in each format, float32 first; it must be the float32 original."""
    if bank.storage != ORIGINAL:
        raise EvalError(
            f"this bank is stored as {bank.storage}, and what that lost cannot be seen any more. "
            f"Give the {ORIGINAL} bank that it was made from."
        )
    return {name: compress(bank, name) for name in dict.fromkeys((ORIGINAL, *storages))}


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
        found = _measured(engine, stored, problem, repeat=repeat)
        known = {cost.storage: ledger.put(keys[cost.storage], cost.as_dict()) for cost in found}
    return [StorageCost(**row) for row in known.values() if row is not None]


def accuracy_loss(trials: Sequence[Trial], storage: str) -> Mean:
    """Accuracy in a format less that in float32 on the same problems: below 0 is a loss."""
    original = {(trial.target, trial.seed): trial.accuracy for trial in trials if trial.arm == ORIGINAL}
    own = [trial for trial in trials if trial.arm == storage]
    return seed_mean(own, lambda trial: trial.accuracy - original[trial.target, trial.seed])


def _measured(
    engine: Atlas, stored: Mapping[str, TaskVectorBank], problem: Problem, *, repeat: int
) -> list[StorageCost]:
    original = stored[ORIGINAL]
    wanted, *_ = slopes = _slopes(engine, stored, problem)
    times = compare(
        {name: _step(engine, bank) for name, bank in stored.items()}, check=math.isfinite, repeat=repeat
    )
    rows = []
    for (name, bank), slope in zip(stored.items(), slopes, strict=True):
        near = fidelity(original, bank).values()
        rows.append(
            StorageCost(
                storage=name,
                nbytes=bank.nbytes,
                seconds=times.timings[name].median_seconds,
                time_ratio=times.ratio(name, ORIGINAL),
                cosine=statistics.fmean(one.cosine for one in near),
                relative_error=statistics.fmean(one.relative_error for one in near),
                gradient_cosine=float(torch.cosine_similarity(slope, wanted, dim=0)),
            )
        )
    return rows


def _slopes(engine: Atlas, stored: Mapping[str, TaskVectorBank], problem: Problem) -> list[Tensor]:
    """∂L/∂λ at λ = 0 in each format, flat."""
    base, grads = dict(engine.backbone.visual.named_parameters()), base_gradient(engine, problem)
    return [Composer(base, bank).gradient(grads).flatten().double() for bank in stored.values()]


def _step(engine: Atlas, bank: TaskVectorBank) -> Callable[[], float]:
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
