"""How few numbers a task needs: accuracy by the number of coefficients, with real and with random directions.

    sittings = Sittings(Stage(engine, settings), folders, settings)
    for row, fresh in run_dimensions(sittings, bank, partitions=(1, 20), ledger=Ledger()):
        row.directions, row.coefficients, row.accuracy

Learning in few directions of the weights is how intrinsic dimension is measured (Li et al., ICLR 2018, with
random ones). Here the directions are the vectors of other tasks, or random ones that are as long in every
block, with one coefficient a vector, one a block and vector, or K. Knows nothing of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from atlas_engine.adapt.trainable import Trainable
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.vector import TaskVector
from atlas_engine.compose.coefficients import Layout
from atlas_engine.runtime import generator
from studies.grid import Ledger, key_of
from studies.low_rank import plan_full_rank
from studies.peft import WHOLE, count_coefficients
from studies.tower_training import StudyTask, StudyTasks, without_own_vectors

__all__ = ["RANDOM", "VECTORS", "DimensionRow", "random_directions", "run_dimensions"]

VECTORS, RANDOM = "task vectors", "random directions"
PER_VECTOR = "one a vector"


@dataclass(frozen=True)
class DimensionRow:
    """One number of coefficients, of one kind of directions, on one task."""

    dataset: str
    directions: str
    layout: str
    count_coefficients: int
    seed: int
    accuracy: float
    zero_shot: float

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class _Arm:
    """One thing to learn: what the row says of it, what identifies it, and how it is made."""

    directions: str
    layout: str
    count_coefficients: int
    identity: tuple[object, ...]
    subject: Callable[[], Trainable]


def run_dimensions(
    sittings: StudyTasks,
    bank: TaskVectorBank,
    *,
    partitions: Sequence[int],
    ledger: Ledger,
    on_start: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[DimensionRow, bool]]:
    """Every folder with every number of coefficients of both kinds of directions, and all weights last."""
    for seed in range(sittings.settings.seeds):
        for name, folder in sittings.folders.items():
            on_start(f"{name}, reading")
            sitting = sittings.at(name, seed)
            for arm in _arms(sitting, without_own_vectors(bank, folder), partitions):
                on_start(f"{name}, {arm.directions}, {arm.layout}")
                yield _measured(sitting, arm, ledger)


def random_directions(bank: TaskVectorBank, *, seed: int) -> TaskVectorBank:
    """Vectors of random numbers, in every block as long as the bank's."""
    draw, vectors = generator(seed), []
    for t, task in enumerate(bank.tasks):
        blocks = {}
        for m, block in enumerate(bank.blocks):
            noise = torch.randn(block.shape, generator=draw)
            blocks[block.name] = noise * (bank.lengths[t, m] / noise.norm())
        vectors.append(TaskVector(task, blocks, bank.base))
    return TaskVectorBank.from_vectors(vectors).to(bank.device)


def _arms(sitting: StudyTask, whole_bank: TaskVectorBank, partitions: Sequence[int]) -> Iterator[_Arm]:
    layouts = {PER_VECTOR: Layout("isotropic")}
    layouts |= {f"× {K}": Layout(partitions=K) for K in partitions}
    stage, seed = sitting.stage, sitting.drawn.seed
    donors = stage.donors(whole_bank)
    for directions in (VECTORS, RANDOM):
        bank = donors if directions == VECTORS else random_directions(donors, seed=seed)
        for label, layout in layouts.items():
            size = count_coefficients(bank.blocks, tasks=len(bank), layout=layout)
            identity = (whole_bank.fingerprint, whole_bank.storage, directions, label)

            def subject(bank: TaskVectorBank = bank, layout: Layout = layout) -> Trainable:
                return stage.mixture(bank, layout, sitting.text)

            yield _Arm(directions, label, size, identity, subject)
    chosen = plan_full_rank(stage.blocks)
    yield _Arm(
        WHOLE,
        WHOLE,
        chosen.parameters,
        (WHOLE, chosen.parameters, chosen.lr),
        lambda: stage.low_rank(chosen, sitting.text, seed=seed),
    )


def _measured(sitting: StudyTask, arm: _Arm, ledger: Ledger) -> tuple[DimensionRow, bool]:
    key = key_of("dimension", sitting.stage.facts, sitting.digest, sitting.drawn.seed, arm.identity)
    fields, fresh = ledger.once(key, lambda: _row(sitting, arm).as_dict())
    return DimensionRow(**fields | {"dataset": sitting.dataset}), fresh


def _row(sitting: StudyTask, arm: _Arm) -> DimensionRow:
    return DimensionRow(
        dataset=sitting.dataset,
        directions=arm.directions,
        layout=arm.layout,
        coefficients=arm.coefficients,
        seed=sitting.drawn.seed,
        accuracy=sitting.accuracy(arm.subject()),
        zero_shot=sitting.zero_shot,
    )
