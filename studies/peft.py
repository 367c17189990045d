"""Parameter-efficient fine-tuning on growing shares of a training set: `atlas eval peft`.

    for row, fresh in run_peft(engine, {"standard": bank}, folders, settings=PeftSettings(), ledger=Ledger()):
        row.accuracy, row.parameters

aTLAS × K splits every block of every task vector at random into K parts with coefficients of their own (arXiv
2407.02880, section 4.4). It is compared with LoRA of as many parameters, for each K, and with fine-tuning of
all matrices. A vector that was made from a folder is left out there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from atlas_engine.adapt.trainable import Trainable
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import BlockTable
from atlas_engine.compose.coefficients import SPLITS, Layout
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.views.heatmap import Grid
from studies.grid import Cell, Ledger, OnStart, StudyRow, drop_repeats, ignore_note, run_grid
from studies.low_rank import LowRankPlan, plan_full_rank, plan_low_rank
from studies.problems.training_sets import TrainingSetSettings, draw_training_set
from studies.tables import ResultTable, count_range, distinct, seed_mean, where
from studies.tower_training import StudyTask, TowerTrainer, TowerTrainingSettings, without_own_vectors

__all__ = [
    "LORA",
    "WHOLE",
    "PeftMethod",
    "PeftRow",
    "PeftSettings",
    "count_coefficients",
    "peft_grid",
    "peft_methods",
    "peft_tables",
    "run_peft",
]

LORA, WHOLE = "LoRA", "fine-tuning"
"""What is learned in place of coefficients: factors of matrices, and matrices."""


@dataclass(frozen=True, kw_only=True)
class PeftSettings(TrainingSetSettings, TowerTrainingSettings):
    """Which shares of which training sets are learned from, in how many parts."""

    percents: tuple[int, ...] = setting(
        (1, 5, 10, 25, 50, 100), help="shares of the training set in percent", low=1, high=100
    )
    partitions: tuple[int, ...] = setting((1, 5, 20, 80), help="parts K of each block", low=1)
    split_by: str = setting("entries", help="what the parts of a block are made of", choices=SPLITS)

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "percents", "partitions", in_order=True)

    def cells(self, kinds: int) -> int:
        """How many rows one training set has, for so many kinds of vectors."""
        return ((kinds + 1) * len(self.partitions) + 1) * len(self.percents)


@dataclass(frozen=True)
class PeftRow(StudyRow):
    """One method on one share of one training set."""

    dataset: str
    way: str  # the method: a kind of vectors, LoRA, or fine-tuning
    partitions: int  # K, or the K whose number of parameters LoRA has; 0 for fine-tuning
    parameters: int
    percent: int
    images: int
    seed: int
    accuracy: float
    zero_shot: float
    n_test: int
    seconds: float


@dataclass(frozen=True, eq=False)
class PeftMethod:
    """One thing to learn: how many numbers it is, what identifies it, and how it is made."""

    name: str
    partitions: int
    parameters: int
    identity: tuple[object, ...]
    trainable: Callable[[Tensor, int], Trainable]  # of the text head (C D) and the seed


def run_peft(
    engine: Atlas,
    banks: Mapping[str, TaskVectorBank],
    folders: Mapping[str, ClassFolder],
    *,
    settings: PeftSettings,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[PeftRow, bool]]:
    """Every row, and whether it was measured now.

    `banks` are kinds of vectors by name; LoRA has as many parameters as the first of them.
    """
    trainer = TowerTrainer(engine, settings)

    def cells_of(dataset: str, folder: ClassFolder, seed: int) -> Iterator[Cell[PeftRow]]:
        drawn = draw_training_set(folder, engine.backbone.preprocessing, settings=settings, seed=seed)
        task = StudyTask(trainer, drawn, dataset)
        usable = {name: without_own_vectors(bank, folder) for name, bank in banks.items()}
        methods = peft_methods(trainer, usable, partitions=settings.partitions, split_by=settings.split_by)
        for percent in settings.percents:
            for method in methods:
                yield _cell(task, method, percent)

    return run_grid(folders, cells_of, seeds=settings.seeds, ledger=ledger, on_start=on_start)


def peft_methods(
    trainer: TowerTrainer,
    banks: Mapping[str, TaskVectorBank],
    *,
    partitions: Sequence[int],
    split_by: str = "entries",
) -> list[PeftMethod]:
    """Each kind of vectors at each K, LoRA with the parameters of each, and fine-tuning."""
    layouts = [Layout(partitions=K, split_by=split_by) for K in partitions]
    mixing = [one for name, bank in banks.items() for one in _coefficients(trainer, name, bank, layouts)]
    matched = [
        _low_rank(trainer, LORA, K, plan_low_rank(trainer.blocks, parameters=method.parameters))
        for K, method in zip(partitions, mixing, strict=False)
    ]
    return [*mixing, *matched, _low_rank(trainer, WHOLE, 0, plan_full_rank(trainer.blocks))]


def count_coefficients(blocks: BlockTable, *, tasks: int, layout: Layout) -> int:
    """How many coefficients have an effect: a block of fewer units than K has as many parts as units."""
    if layout.granularity == "isotropic":
        return tasks
    return tasks * sum(min(layout.partitions, layout.unit_count(block)) for block in blocks)


def _coefficients(
    trainer: TowerTrainer, name: str, bank: TaskVectorBank, layouts: Sequence[Layout]
) -> list[PeftMethod]:
    vectors = trainer.restrict(bank)

    def method(layout: Layout) -> PeftMethod:
        K, by_rows = layout.partitions, layout.split_by == "rows"
        size = count_coefficients(trainer.blocks, tasks=len(bank), layout=layout)
        identity = (bank.fingerprint, bank.storage, K, *(["rows"] if by_rows and K > 1 else []))
        return PeftMethod(
            f"{name}, by rows" if by_rows else name,
            K,
            size,
            identity,
            lambda text, _: trainer.coefficients(vectors, layout, text),
        )

    return [method(layout) for layout in layouts]


def _low_rank(trainer: TowerTrainer, name: str, K: int, plan: LowRankPlan) -> PeftMethod:
    identity = ("low rank", plan.rank, [block.name for block in plan.blocks], plan.lr)
    return PeftMethod(
        name, K, plan.parameters, identity, lambda text, seed: trainer.low_rank(plan, text, seed=seed)
    )


def _cell(task: StudyTask, method: PeftMethod, percent: int) -> Cell[PeftRow]:
    """Two methods of one identity are measured once: the smallest LoRA may stand for several K."""
    return Cell(
        f"{task.dataset}, {percent} %, {method.name} × {method.partitions}",
        ("peft", task.trainer.facts, task.digest, task.drawn.seed, method.identity, percent),
        lambda: _measure(task, method, percent).as_dict(),
        PeftRow,
        {"dataset": task.dataset, "way": method.name, "partitions": method.partitions},
    )


def _measure(task: StudyTask, method: PeftMethod, percent: int) -> PeftRow:
    drawn = task.drawn
    images = drawn.count(percent)
    zero_shot, trainable = task.zero_shot, method.trainable(task.text, drawn.seed)
    start = time.perf_counter()
    accuracy = task.accuracy(trainable, images=images)
    return PeftRow(
        dataset=task.dataset,
        way=method.name,
        partitions=method.partitions,
        parameters=method.parameters,
        percent=percent,
        images=images,
        seed=drawn.seed,
        accuracy=accuracy,
        zero_shot=zero_shot,
        n_test=len(drawn.test),
        seconds=time.perf_counter() - start,
    )


# ---- the report

Rows = Sequence[PeftRow]


def peft_tables(rows: Rows) -> list[ResultTable]:
    """Means over data sets, what more parts bring, and each data set."""
    datasets = distinct(rows, "dataset")
    over = f"mean over {len(datasets)} data sets" if len(datasets) > 1 else datasets[0]
    zero_shot = seed_mean(rows, lambda row: row.zero_shot).percent()
    first = _table(f"Accuracy in %, {over} (zero-shot {zero_shot})", rows)
    each = [_dataset_table(name, where(rows, dataset=name)) for name in datasets] if len(datasets) > 1 else []
    rises = _rise_table(rows)
    return [first, *([] if rises is None else [rises]), *each]


def peft_grid(rows: Rows) -> Grid:
    """Methods × shares, mean over data sets and seeds: points above zero-shot."""
    percents = sorted({row.percent for row in rows})
    lines = _lines(rows)
    values = [
        tuple(
            100 * seed_mean(where(own, percent=p), lambda row: row.accuracy - row.zero_shot).mean
            for p in percents
        )
        for _, own in lines
    ]
    return Grid(
        "Learning from a share of the training set",
        tuple(name for name, _ in lines),
        tuple(f"{percent} %" for percent in percents),
        tuple(values),
        about=f"Accuracy above zero-shot in points; mean of {len(distinct(rows, 'dataset'))} data set(s) "
        f"and {len({row.seed for row in rows})} seed(s).",
    )


def _table(title: str, rows: Rows) -> ResultTable:
    """Methods × shares, with how many numbers each method learns."""
    percents = sorted({row.percent for row in rows})
    lines = [
        (
            name,
            count_range([row.parameters for row in own]),
            *(seed_mean(where(own, percent=percent)).percent() for percent in percents),
        )
        for name, own in _lines(rows)
    ]
    return ResultTable(title, lines, ("what learns", "parameters", *(f"{percent} %" for percent in percents)))


def _dataset_table(name: str, rows: Rows) -> ResultTable:
    zero_shot = seed_mean(rows, lambda row: row.zero_shot).percent()
    largest = max(row.percent for row in rows)
    images = round(statistics.fmean(row.images for row in where(rows, percent=largest)))
    return _table(f"{name}: accuracy in %, of {images} training images (zero-shot {zero_shot})", rows)


def _rise_table(rows: Rows) -> ResultTable | None:
    """Points between one number of parts and the next on the same training sets; None where there is one."""
    methods = [name for name in distinct(rows, "way") if name != WHOLE]
    parts = sorted({row.partitions for row in rows if row.way != WHOLE})
    if len(parts) < 2:
        return None
    percents = sorted({row.percent for row in rows})
    known = {(r.way, r.dataset, r.seed, r.percent, r.partitions): r.accuracy for r in rows}
    lines = []
    for method in methods:
        for before, after in pairwise(parts):
            own = where(rows, way=method, partitions=after)

            def rise(row: PeftRow, before: int = before) -> float:
                return row.accuracy - known[row.way, row.dataset, row.seed, row.percent, before]

            cells = [seed_mean(where(own, percent=p), rise).percent(sign=True) for p in percents]
            lines.append((method, f"{before} → {after}", *cells))
    return ResultTable(
        "What more parts K bring, in points on the same training sets",
        lines,
        ("what learns", "K", *(f"{percent} %" for percent in percents)),
    )


def _lines(rows: Rows) -> list[tuple[str, list[PeftRow]]]:
    """A name for each method and number of parts, and its rows."""
    found = []
    for method in distinct(rows, "way"):
        for K in sorted({row.partitions for row in where(rows, way=method)}):
            name = method if method == WHOLE else f"{LORA}, as × {K}" if method == LORA else f"{method} × {K}"
            found.append((name, where(rows, way=method, partitions=K)))
    return found
