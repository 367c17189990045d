"""How few numbers a task needs, with task vectors and with random directions: `atlas eval disentangle`.

    tasks = StudyTasks(TowerTrainer(engine, settings), folders, settings)
    for row, fresh in run_dimensions(tasks, bank, partitions=(1, 20), ledger=Ledger()):
        row.directions, row.coefficients, row.accuracy

Learning in few directions of the weights is how intrinsic dimension is measured (Li et al., ICLR 2018, with
random ones). Here the directions are the vectors of other tasks, or random ones with the same norm in every
block, with one coefficient a vector, one a block and vector, or K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from atlas_engine.adapt.trainable import Trainable
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.vector import TaskVector
from atlas_engine.compose.coefficients import Layout
from atlas_engine.data.folders import ClassFolder
from atlas_engine.runtime import generator
from studies.grid import Cell, Ledger, OnStart, StudyRow, ignore_note, run_grid
from studies.low_rank import plan_full_rank
from studies.peft import WHOLE, count_coefficients
from studies.tables import MEAN, ResultTable, count_range, distinct, seed_mean, where
from studies.tower_training import StudyTask, StudyTasks, without_own_vectors

__all__ = ["RANDOM", "VECTORS", "DimensionRow", "dimension_tables", "random_directions", "run_dimensions"]

VECTORS, RANDOM = "task vectors", "random directions"
PER_VECTOR = "one a vector"


@dataclass(frozen=True)
class DimensionRow(StudyRow):
    """One number of coefficients, of one kind of directions, on one task."""

    dataset: str
    directions: str
    layout: str
    coefficients: int
    seed: int
    accuracy: float
    zero_shot: float


@dataclass(frozen=True, eq=False)
class _Parameters:
    """What is learned: what the row says of it, what identifies it, and how it is made."""

    directions: str
    layout: str
    count: int
    identity: tuple[object, ...]
    trainable: Callable[[], Trainable]


def run_dimensions(
    tasks: StudyTasks,
    bank: TaskVectorBank,
    *,
    partitions: Sequence[int],
    split_by: str = "entries",
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[DimensionRow, bool]]:
    """Every folder with every number of coefficients of both kinds of directions, and fine-tuning last."""
    layouts = {PER_VECTOR: Layout("isotropic")}
    for K in partitions:
        by_rows = " by rows" if split_by == "rows" and K > 1 else ""
        layouts[f"× {K}{by_rows}"] = Layout(partitions=K, split_by=split_by)

    def cells_of(dataset: str, folder: ClassFolder, seed: int) -> Iterator[Cell[DimensionRow]]:
        task = tasks.draw(dataset, seed)
        for parameters in _all_parameters(task, without_own_vectors(bank, folder), layouts):
            yield _cell(task, parameters)

    return run_grid(tasks.folders, cells_of, seeds=tasks.settings.seeds, ledger=ledger, on_start=on_start)


def random_directions(bank: TaskVectorBank, *, seed: int) -> TaskVectorBank:
    """Vectors of random numbers with the norms of the bank's in every block."""
    draw, vectors = generator(seed), []
    for t, task in enumerate(bank.tasks):
        blocks = {}
        for m, block in enumerate(bank.blocks):
            noise = torch.randn(block.shape, generator=draw)
            blocks[block.name] = noise * (bank.block_norms[t, m] / noise.norm())
        vectors.append(TaskVector(task, blocks, bank.base))
    return TaskVectorBank.from_vectors(vectors).to(bank.device)


def _all_parameters(
    task: StudyTask, whole_bank: TaskVectorBank, layouts: Mapping[str, Layout]
) -> Iterator[_Parameters]:
    trainer, seed = task.trainer, task.drawn.seed
    vectors = trainer.restrict(whole_bank)
    for directions in (VECTORS, RANDOM):
        bank = vectors if directions == VECTORS else random_directions(vectors, seed=seed)
        for label, layout in layouts.items():
            count = count_coefficients(bank.blocks, tasks=len(bank), layout=layout)
            identity = (whole_bank.fingerprint, whole_bank.storage, directions, label)

            def trainable(bank: TaskVectorBank = bank, layout: Layout = layout) -> Trainable:
                return trainer.coefficients(bank, layout, task.text)

            yield _Parameters(directions, label, count, identity, trainable)
    plan = plan_full_rank(trainer.blocks)
    yield _Parameters(
        WHOLE,
        WHOLE,
        plan.parameters,
        (WHOLE, plan.parameters, plan.lr),
        lambda: trainer.low_rank(plan, task.text, seed=seed),
    )


def _cell(task: StudyTask, parameters: _Parameters) -> Cell[DimensionRow]:
    def measure() -> DimensionRow:
        return DimensionRow(
            dataset=task.dataset,
            directions=parameters.directions,
            layout=parameters.layout,
            coefficients=parameters.count,
            seed=task.drawn.seed,
            accuracy=task.accuracy(parameters.trainable()),
            zero_shot=task.zero_shot,
        )

    return Cell(
        f"{task.dataset}, {parameters.directions}, {parameters.layout}",
        ("dimension", task.trainer.facts, task.digest, task.drawn.seed, parameters.identity),
        lambda: measure().as_dict(),
        DimensionRow,
        {"dataset": task.dataset},
    )


# ---- the report

Rows = Sequence[DimensionRow]


def dimension_tables(rows: Rows) -> list[ResultTable]:
    """Accuracy by the number of coefficients, of both kinds of directions."""
    datasets = distinct(rows, "dataset")
    lines = []
    for layout in distinct(rows, "layout"):
        own = where(rows, layout=layout)
        size = count_range([row.coefficients for row in own])
        for directions in distinct(own, "directions"):
            some = where(own, directions=directions)
            cells = [seed_mean(where(some, dataset=name)).percent() for name in datasets]
            lines.append(
                (layout, size, directions, *cells, seed_mean(some).percent(), _share_of_gain(some, rows))
            )
    zero_shot = [seed_mean(where(rows, dataset=name), _zero_shot).percent() for name in datasets]
    lines.append(("zero-shot", "0", "–", *zero_shot, seed_mean(rows, _zero_shot).percent(), "0"))
    columns = ("coefficients", "how many", "directions", *datasets, MEAN, "of fine-tuning's gain %")
    return [ResultTable("Accuracy in % by the number of coefficients", lines, columns)]


def _share_of_gain(some: Rows, rows: Rows) -> str:
    """The gain over zero-shot as a share of fine-tuning's gain, in percent."""
    whole = seed_mean(where(rows, directions=WHOLE), lambda row: row.accuracy - row.zero_shot).mean
    gain = seed_mean(some, lambda row: row.accuracy - row.zero_shot).mean
    return "–" if whole <= 0 else f"{100 * gain / whole:.0f}"


def _zero_shot(row: DimensionRow) -> float:
    return row.zero_shot
