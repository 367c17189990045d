"""Parameter-efficient fine-tuning: coefficients × K and LoRA, on growing shares of a training set.

    for row, fresh in run_peft(engine, {"standard": bank}, folders, settings=PeftSettings(), ledger=Ledger()):
        row.accuracy, row.parameters

×K splits every block of every vector at random into K parts with coefficients of their own (aTLAS, arXiv
2407.02880, section 4.4). Against each K stands LoRA with as many numbers to learn, and at the end all of the
weights. A vector made from a folder is left out there. Knows nothing of tables.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor

from atlas_engine.adapt.trainable import Trainable
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import BlockTable
from atlas_engine.compose.coefficients import Layout
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.views.heatmap import Grid
from studies.grid import Ledger, drop_repeats, key_of
from studies.low_rank import LowRankPlan, plan_full_rank, plan_low_rank
from studies.problems.training_sets import TrainingSetSettings, draw_training_set
from studies.tables import ResultTable, distinct, seed_mean, where
from studies.tower_training import StudyTask, TowerTrainer, TowerTrainingSettings, without_own_vectors

__all__ = ["LORA", "WHOLE", "PeftMethod", "PeftRow", "PeftSettings", "count_coefficients", "peft_grid", "peft_methods", "peft_tables", "run_peft"]

LORA, WHOLE = "LoRA", "fine-tuning"
"""What is learned in place of coefficients: factors of matrices, and matrices."""


@dataclass(frozen=True, kw_only=True)
class PeftSettings(TrainingSetSettings, TowerTrainingSettings):
    """Which shares of which training sets are learned from, in how many parts."""

    percents: tuple[int, ...] = setting(
        (1, 5, 10, 25, 50, 100), help="shares of the training set in percent", low=1, high=100
    )
    partitions: tuple[int, ...] = setting((1, 5, 20, 80), help="parts K of each block", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "percents", "partitions", in_order=True)

    def cells(self, kinds: int) -> int:
        """How many rows one training set has, for so many kinds of vectors."""
        return ((kinds + 1) * len(self.partitions) + 1) * len(self.percents)


@dataclass(frozen=True)
class PeftRow:
    """One way to learn, from one share of one training set."""

    dataset: str
    way: str  # the kind of vectors, LoRA, or fine-tuning
    partitions: int  # K, or the K that LoRA has as many parameters as; 0 for fine-tuning
    parameters: int
    percent: int
    images: int
    seed: int
    accuracy: float
    zero_shot: float
    n_test: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class PeftMethod:
    """One thing to learn: how many numbers it is, what identifies it, and the subject for a head and seed."""

    name: str
    partitions: int
    parameters: int
    identity: tuple[object, ...]
    subject: Callable[[Tensor, int], Trainable]


def run_peft(
    engine: Atlas,
    banks: Mapping[str, TaskVectorBank],
    folders: Mapping[str, ClassFolder],
    *,
    settings: PeftSettings,
    ledger: Ledger,
    on_start: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[PeftRow, bool]]:
    """Every row and whether it was measured now, training set by training set, all folders of a seed first.

    `banks` are kinds of vectors by name; LoRA has as many parameters as the first of them.
    """
    stage = TowerTrainer(engine, settings)
    for seed in range(settings.seeds):
        for dataset, folder in folders.items():
            on_start(f"{dataset}, reading")
            drawn = draw_training_set(folder, engine.backbone.preprocessing, settings=settings, seed=seed)
            sitting = StudyTask(stage, drawn, dataset)
            chosen = {name: without_own_vectors(bank, folder) for name, bank in banks.items()}
            every = peft_methods(stage, chosen, partitions=settings.partitions)
            for percent in settings.percents:
                for way in every:
                    on_start(f"{dataset}, {percent} %, {way.name} × {way.partitions}")
                    yield _measured(sitting, way, percent=percent, ledger=ledger)


def peft_methods(
    stage: TowerTrainer, banks: Mapping[str, TaskVectorBank], *, partitions: Sequence[int]
) -> list[PeftMethod]:
    """Each kind of vectors at each K, LoRA with the parameters of each, and fine-tuning."""
    mixed = [way for name, bank in banks.items() for way in _mixtures(stage, name, bank, partitions)]
    matched = [
        _low_rank(stage, LORA, K, plan_low_rank(stage.blocks, parameters=way.parameters))
        for K, way in zip(partitions, mixed, strict=False)
    ]
    return [*mixed, *matched, _low_rank(stage, WHOLE, 0, plan_full_rank(stage.blocks))]


def count_coefficients(blocks: BlockTable, *, tasks: int, layout: Layout) -> int:
    """How many coefficients do anything: a block of fewer numbers than K has no more parts than numbers."""
    if layout.granularity == "isotropic":
        return tasks
    return tasks * sum(min(layout.partitions, block.numel) for block in blocks)


def _mixtures(
    stage: TowerTrainer, name: str, bank: TaskVectorBank, partitions: Sequence[int]
) -> list[PeftMethod]:
    donors = stage.donors(bank)

    def mixture(K: int) -> PeftMethod:
        layout = Layout(partitions=K)
        size = count_coefficients(stage.blocks, tasks=len(bank), layout=layout)
        identity = (bank.fingerprint, bank.storage, K)
        return PeftMethod(name, K, size, identity, lambda text, _: stage.mixture(donors, layout, text))

    return [mixture(K) for K in partitions]


def _low_rank(stage: TowerTrainer, name: str, K: int, chosen: LowRankPlan) -> PeftMethod:
    identity = ("low rank", chosen.rank, [block.name for block in chosen.blocks], chosen.lr)
    return PeftMethod(
        name, K, chosen.parameters, identity, lambda text, seed: stage.low_rank(chosen, text, seed=seed)
    )


def _row(sitting: StudyTask, way: PeftMethod, percent: int) -> PeftRow:
    drawn = sitting.drawn
    images = drawn.count(percent)
    zero_shot, subject = sitting.zero_shot, way.subject(sitting.text, drawn.seed)
    start = time.perf_counter()
    accuracy = sitting.accuracy(subject, images=images)
    return PeftRow(
        dataset=sitting.dataset,
        way=way.name,
        partitions=way.partitions,
        parameters=way.parameters,
        percent=percent,
        images=images,
        seed=drawn.seed,
        accuracy=accuracy,
        zero_shot=zero_shot,
        n_test=len(drawn.test),
        seconds=time.perf_counter() - start,
    )


def _measured(sitting: StudyTask, way: PeftMethod, *, percent: int, ledger: Ledger) -> tuple[PeftRow, bool]:
    """Ways that are the same under two names are measured once: the smallest LoRA may stand for several K."""
    key = key_of("peft", sitting.stage.facts, sitting.digest, sitting.drawn.seed, way.identity, percent)
    fields, fresh = ledger.once(key, lambda: _row(sitting, way, percent).as_dict())
    named = {"dataset": sitting.dataset, "way": way.name, "partitions": way.partitions}
    return PeftRow(**fields | named), fresh


# TODO merged docstring: """Ways to learn from shares of a training set, as tables and a grid to draw. Pure; knows nothing of engines. A cell says the mean over seeds and the standard deviation over them. A mean over data sets is taken within each seed first. """
Rows = Sequence[PeftRow]
Cell = Callable[[Rows], str]


def peft_tables(rows: Rows) -> list[ResultTable]:
    """Means over data sets, what more parts bring, and each data set."""
    datasets = distinct(rows, "dataset")
    where = f"mean over {len(datasets)} data sets" if len(datasets) > 1 else datasets[0]
    zero_shot = seed_mean(rows, lambda row: row.zero_shot).shown()
    first = _sheet(f"Accuracy in %, {where} (zero-shot {zero_shot})", rows, lambda own: seed_mean(own).shown())
    each = [_dataset_sheet(name, where(rows, dataset=name)) for name in datasets] if len(datasets) > 1 else []
    rises = _rise_sheet(rows)
    return [first, *([] if rises is None else [rises]), *each]


def peft_grid(rows: Rows) -> Grid:
    """Ways × shares, mean over data sets and seeds: points above zero-shot."""
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


def _sheet(title: str, rows: Rows, cell: Cell) -> ResultTable:
    """Ways × shares, with how many numbers each way learns."""
    percents = sorted({row.percent for row in rows})
    lines = [
        (name, _parameters(own), *(cell(where(own, percent=percent)) for percent in percents))
        for name, own in _lines(rows)
    ]
    return ResultTable(title, lines, ("what learns", "parameters", *(f"{percent} %" for percent in percents)))


def _dataset_sheet(name: str, rows: Rows) -> ResultTable:
    zero_shot = seed_mean(rows, lambda row: row.zero_shot).shown()
    whole = round(statistics.fmean(row.images for row in rows if row.percent == max(r.percent for r in rows)))
    title = f"{name}: accuracy in %, of {whole} training images (zero-shot {zero_shot})"
    return _sheet(title, rows, lambda own: seed_mean(own).shown())


def _rise_sheet(rows: Rows) -> ResultTable | None:
    """Points between one number of parts and the next, on the same training sets."""
    kinds = [name for name in distinct(rows, "way") if name != WHOLE]
    parts = sorted({row.partitions for row in rows if row.way != WHOLE})
    if len(parts) < 2:
        return None
    percents = sorted({row.percent for row in rows})
    known = {(r.way, r.dataset, r.seed, r.percent, r.partitions): r.accuracy for r in rows}
    lines = []
    for way in kinds:
        for before, after in pairwise(parts):
            own = where(rows, way=way, partitions=after)

            def rise(row: PeftRow, before: int = before) -> float:
                return row.accuracy - known[row.way, row.dataset, row.seed, row.percent, before]

            cells = [seed_mean(where(own, percent=p), rise).shown(sign=True) for p in percents]
            lines.append((way, f"{before} → {after}", *cells))
    return ResultTable(
        "What more parts K bring, in points on the same training sets",
        lines,
        ("what learns", "K", *(f"{percent} %" for percent in percents)),
    )


def _lines(rows: Rows) -> list[tuple[str, list[PeftRow]]]:
    """A name for each way and number of parts, and its rows."""
    found = []
    for way in distinct(rows, "way"):
        for K in sorted({row.partitions for row in where(rows, way=way)}):
            name = way if way == WHOLE else f"{way}, as × {K}" if way == LORA else f"{way} × {K}"
            found.append((name, where(rows, way=way, partitions=K)))
    return found


def _parameters(rows: Rows) -> str:
    counts = sorted({row.parameters for row in rows})
    return "–".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
