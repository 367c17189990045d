"""A head on a tower that already stands at a mix of task vectors, unlearned: `atlas eval starts`.

    for row, fresh in run_starts(engine, engine.bank, folders, settings=StartSettings(), ledger=Ledger()): ...

BOLT (CVPR 2026) starts from a pooled, non-zero composition. Here every vector gets one coefficient, or the
few whose data sets look most like the shots do, or both; the head of `auto` is fitted on the features of that
tower. The same coefficients over random vectors of the same norms are the control. A folder's own vector is
left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.select import select_by_features
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.used_vectors import build_tower
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.heads.registry import HEADS
from studies.banks.random_bank import random_bank
from studies.few_shot import RANDOM
from studies.grid import Cell, Ledger, OnStart, StudyRow, drop_repeats, ignore_note, run_grid
from studies.problems.few_shot import (
    Problem,
    StudySettings,
    draw_problem,
    share_correct,
    shot_pixels,
    unit_features,
    with_shots,
)
from studies.same_features import read_levels
from studies.tables import ResultTable, clustered_mean, distinct, where
from studies.tower_training import without_own_vectors

__all__ = [
    "STARTS",
    "Start",
    "StartRow",
    "StartSettings",
    "count_starts",
    "run_starts",
    "start_coefficients",
    "start_tables",
]

BASE = "base"
HEAD = "text-probe"


@dataclass(frozen=True)
class Start:
    """A composition with one coefficient for all vectors, and one more for the nearest few."""

    name: str
    of_all: float = 0.0
    nearest: int = 0
    of_nearest: float = 0.0


STARTS = (
    Start("all at 0.05", of_all=0.05),
    Start("3 nearest at 0.15", nearest=3, of_nearest=0.15),
    Start("all at 0.05, 3 nearest at 0.2", of_all=0.05, nearest=3, of_nearest=0.15),
)


@dataclass(frozen=True, kw_only=True)
class StartSettings(Settings):
    """Which problems are drawn."""

    shots: tuple[int, ...] = setting((1, 4), help="images of a class to learn from", low=1)
    seeds: int = setting(1, help="problems drawn from each folder", low=1)
    max_classes: int = setting(10, help="most classes of a problem, drawn by seed", low=2)
    max_test: int = setting(100, help="most images to measure on", low=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "shots", in_order=True)


@dataclass(frozen=True)
class StartRow(StudyRow):
    """A head on one tower, on one problem."""

    dataset: str
    start: str
    shots: int
    seed: int
    accuracy: float
    n_test: int


def run_starts(
    engine: Atlas,
    bank: TaskVectorBank,
    folders: Mapping[str, ClassFolder],
    *,
    settings: StartSettings,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[StartRow, bool]]:
    """Every row, and whether it was measured now."""
    shape, random = engine.backbone.preprocessing, random_bank(bank)
    draws = StudySettings(
        shots=settings.shots[-1], max_classes=settings.max_classes, max_test=settings.max_test
    )

    def cells_of(dataset: str, folder: ClassFolder, seed: int) -> Iterator[Cell[StartRow]]:
        largest = draw_problem(folder, shape, settings=draws, seed=seed)
        own = without_own_vectors(bank, folder)
        control = random.select(own.tasks)
        for shots in settings.shots:
            problem = with_shots(largest, shots)
            for start in (Start(BASE), *STARTS):
                for used, ending in ((own, ""), (control, RANDOM))[: 1 if start.name == BASE else 2]:
                    yield _cell(engine, used, start, problem, dataset=dataset, shots=shots, ending=ending)

    return run_grid(folders, cells_of, seeds=settings.seeds, ledger=ledger, on_start=on_start)


def count_starts(settings: StartSettings, *, folders: int) -> int:
    """How many rows `run_starts` gives."""
    return folders * settings.seeds * len(settings.shots) * (1 + 2 * len(STARTS))


def start_tables(rows: Sequence[StartRow]) -> list[ResultTable]:
    """Accuracy of the head on the base tower, and what each start adds to it on the same problems."""
    known = {(r.dataset, r.shots, r.seed): r.accuracy for r in where(rows, start=BASE)}
    shots = sorted({row.shots for row in rows})
    lines = [
        (f"{HEAD} on the base", *(clustered_mean(where(rows, start=BASE, shots=k)).percent() for k in shots))
    ]
    for name in distinct(rows, "start"):
        if name != BASE:
            gains = [
                clustered_mean(
                    where(rows, start=name, shots=k),
                    lambda row: row.accuracy - known[row.dataset, row.shots, row.seed],
                )
                for k in shots
            ]
            lines.append((name, *(gain.percent(sign=True) for gain in gains)))
    over = f"mean over {len(distinct(rows, 'dataset'))} data sets; ± is the standard error over them"
    title = f"Accuracy of the head in %, and the points that a start adds to it, {over}"
    return [ResultTable(title, lines, ("start", *(f"k = {k}" for k in shots)))]


def _cell(
    engine: Atlas,
    bank: TaskVectorBank,
    start: Start,
    problem: Problem,
    *,
    dataset: str,
    shots: int,
    ending: str,
) -> Cell[StartRow]:
    numbers = (start.of_all, start.nearest, start.of_nearest)
    return Cell(
        f"{dataset}, {shots} shot(s), {start.name}{ending}",
        ("starts", engine.fingerprint, bank.fingerprint, problem.digest, problem.seed, numbers, ending),
        lambda: {
            "shots": shots,
            "seed": problem.seed,
            "accuracy": _accuracy(engine, bank, start, problem),
            "n_test": len(problem.labels),
        },
        StartRow,
        {"dataset": dataset, "start": start.name + ending},
    )


def _accuracy(engine: Atlas, bank: TaskVectorBank, start: Start, problem: Problem) -> float:
    """Of the head on the features of the tower at the start."""
    pixels, text = shot_pixels(engine, problem), engine.starting_head(problem.support)
    visual = build_tower(engine.backbone.visual, bank, start_coefficients(engine, bank, start, problem))
    shots, features_of = read_levels(engine, visual, problem, text=text, pixels=pixels)
    head = HEADS[HEAD].fit_alone(shots)
    return share_correct(head.logits(features_of(problem.pixels)), problem.labels)


def start_coefficients(engine: Atlas, bank: TaskVectorBank, start: Start, problem: Problem) -> Coefficients:
    """One coefficient per vector; those of the vectors nearest to the shots are larger."""
    coefficients = Coefficients.zeros(bank.tasks, bank.blocks, layout=Layout("isotropic"))
    coefficients.values.fill_(start.of_all)
    if start.nearest:
        mean = unit_features(engine, engine.backbone.visual, shot_pixels(engine, problem)).mean(dim=0)
        for name in select_by_features(bank, mean, budget=min(start.nearest, len(bank))):
            coefficients.values[bank.tasks.index(name)] += start.of_nearest
    return coefficients
