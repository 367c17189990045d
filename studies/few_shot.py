"""Few-shot methods compared on every data set, number of shots and seed: `atlas eval few-shot`.

    solver = Solver(engine, bank=bank)
    settings = FewShotStudySettings(shots=(1, 4))
    rows = [row for row, _ in run_few_shot(solver, {"pets": folder}, settings=settings, ledger=Ledger())]
    few_shot_tables(rows)[0].plain()

A seed draws the classes, the test images and the largest number of shots; fewer shots are the first of these.
So methods are compared on the same images, and so are numbers of shots.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.errors import SupportError
from atlas_engine.views.heatmap import Grid
from studies.grid import Cell, Ledger, OnStart, StudyRow, drop_repeats, ignore_note, run_grid
from studies.methods import STUDY_METHODS, ZERO_SHOT, Solver, StudyMethod, find_study_method
from studies.problems.draw import draw_classes
from studies.problems.few_shot import Problem, StudySettings, draw_problem, with_shots
from studies.tables import ResultTable, distinct, seed_mean, where

__all__ = [
    "FewShotRow",
    "FewShotStudySettings",
    "calibration_table",
    "few_shot_grid",
    "few_shot_tables",
    "require_enough_images",
    "run_few_shot",
]


@dataclass(frozen=True, kw_only=True)
class FewShotStudySettings(Settings):
    """Which problems are drawn, which methods solve them, and how much those may learn."""

    shots: tuple[int, ...] = setting((1, 2, 4, 8, 16), help="images of a class to learn from", low=1)
    seeds: int = setting(3, help="problems drawn from each folder", low=1)
    methods: tuple[str, ...] = setting(
        tuple(STUDY_METHODS),
        help="methods to compare, with commas between them",
        choices=tuple(STUDY_METHODS),
    )
    max_classes: int | None = setting(None, help="most classes of a problem, drawn by seed", low=2)
    max_test: int | None = setting(None, help="most images to measure on, as many of each class", low=2)
    steps: int | None = setting(None, help="optimiser steps of all that train; none is the product's", low=1)
    batch: int | None = setting(None, help="images a step; none is the product's", low=1)
    lr: float | None = setting(None, help="learning rate of the first step; none is the product's", low=0.0)
    epochs: int | None = setting(None, help="passes over the images; none is the product's", low=0)
    views: int | None = setting(None, help="random views kept of each image; none is the product's", low=1)
    share: float | None = setting(
        None, help="share of the tower that task vectors may move; none is the product's", low=0.0, high=1.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "shots", in_order=True)
        drop_repeats(self, "methods")

    def budget(self) -> FewShotConfig | None:
        """The config of all that train; None leaves it to the product."""
        names = ("steps", "batch", "lr", "epochs", "views", "share")
        given = {name: getattr(self, name) for name in names}
        chosen = {name: value for name, value in given.items() if value is not None}
        return FewShotConfig(**chosen) if chosen else None

    def draws(self, folder: ClassFolder) -> StudySettings:
        """How a problem with the largest number of shots is drawn from a folder."""
        classes = min(self.max_classes or len(folder.classes), len(folder.classes))
        every = classes * max(folder.counts)
        return StudySettings(
            shots=self.shots[-1], max_classes=classes, max_test=min(self.max_test or every, every)
        )


@dataclass(frozen=True)
class FewShotRow(StudyRow):
    """One method on one problem. `estimate` is the accuracy that the method expected, where it says."""

    dataset: str
    method: str
    shots: int
    seed: int
    accuracy: float
    n_test: int
    seconds: float
    fell_back: bool
    estimate: float | None = None
    estimate_low: float | None = None
    estimate_high: float | None = None


def run_few_shot(
    solver: Solver,
    folders: Mapping[str, ClassFolder],
    *,
    settings: FewShotStudySettings,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[FewShotRow, bool]]:
    """Every row, and whether it was measured now."""
    methods = [find_study_method(name) for name in settings.methods]
    shape = solver.engine.backbone.preprocessing

    def cells_of(dataset: str, folder: ClassFolder, seed: int) -> Iterator[Cell[FewShotRow]]:
        largest = draw_problem(folder, shape, settings=settings.draws(folder), seed=seed)
        for shots in settings.shots:
            problem = with_shots(largest, shots)
            for method in methods:
                yield _cell(solver, method, problem, dataset=dataset, shots=shots)

    return run_grid(folders, cells_of, seeds=settings.seeds, ledger=ledger, on_start=on_start)


def _cell(
    solver: Solver, method: StudyMethod, problem: Problem, *, dataset: str, shots: int
) -> Cell[FewShotRow]:
    model = solver.engine.fingerprint
    return Cell(
        f"{dataset}, {shots} shot(s), {method.name}",
        ("few-shot", model, problem.digest, problem.seed, method.name, method.facts(solver)),
        lambda: _measure(solver, method, problem, dataset=dataset, shots=shots).as_dict(),
        FewShotRow,
        {"dataset": dataset},
    )


def _measure(
    solver: Solver, method: StudyMethod, problem: Problem, *, dataset: str, shots: int
) -> FewShotRow:
    answer = method.solve(solver, problem)
    expected = answer.estimate
    return FewShotRow(
        dataset=dataset,
        method=method.name,
        shots=shots,
        seed=problem.seed,
        accuracy=answer.accuracy(problem.labels),
        n_test=len(problem.labels),
        seconds=answer.seconds,
        fell_back=answer.fell_back,
        estimate=None if expected is None else expected.accuracy,
        estimate_low=None if expected is None else expected.low,
        estimate_high=None if expected is None else expected.high,
    )


def require_enough_images(folders: Mapping[str, ClassFolder], settings: FewShotStudySettings) -> None:
    """Raise where a class is too small, before anything is measured. Near-duplicates are found only later."""
    most = settings.shots[-1]
    for dataset, folder in folders.items():
        for seed in range(settings.seeds):
            drawn = draw_classes(folder, settings.max_classes, seed=seed)
            for name, count in zip(drawn.classes, drawn.counts, strict=True):
                if count <= most:
                    raise SupportError(
                        f"{dataset}: class '{name}' has {count} image(s), but {most} shot(s) and one to "
                        f"measure on need {most + 1}. Add {most + 1 - count}, or pass fewer shots."
                    )


# ---- the report

Rows = Sequence[FewShotRow]
Number = Callable[[FewShotRow], float]


def few_shot_tables(rows: Rows) -> list[ResultTable]:
    """Means over data sets, differences to zero-shot, each data set, costs, and what methods expected.

    A difference to zero-shot is taken on each problem, so its spread does not contain how hard a problem is.
    """
    datasets = distinct(rows, "dataset")
    over = f"mean over {len(datasets)} data sets" if len(datasets) > 1 else datasets[0]
    tables = [_table(f"Accuracy in %, {over}", rows, lambda own: seed_mean(own).percent())]
    gain = _gain_over_zero_shot(rows)
    if gain is not None:
        difference = _table(
            f"Difference to zero-shot in points, {over}",
            rows,
            lambda own: seed_mean(own, gain).percent(sign=True),
        )
        tables.append(difference)
    if len(datasets) > 1:
        tables += [_dataset_table(name, where(rows, dataset=name), gain) for name in datasets]
    estimates = calibration_table(rows)
    return [*tables, _cost_table(rows), *([] if estimates is None else [estimates])]


def calibration_table(rows: Rows) -> ResultTable | None:
    """What methods expected of themselves beside what came true; None where no method says."""
    lines = []
    for method in distinct(rows, "method"):
        for shots in sorted({row.shots for row in rows}):
            own = [row for row in where(rows, method=method, shots=shots) if row.estimate is not None]
            if own:
                lines.append((method, shots, len(own), *_calibration(own)))
    if not lines:
        return None
    columns = ("method", "shots", "problems", "estimate %", "true %", "off by", "true in the interval %")
    title = "What a method expects without test images, and what comes true (off by: mean distance in points)"
    return ResultTable(title, lines, columns)


def few_shot_grid(rows: Rows) -> Grid:
    """Methods × shots, mean over data sets and seeds: points above zero-shot, or accuracy without that."""
    gain, shots = _gain_over_zero_shot(rows), sorted({row.shots for row in rows})
    methods = tuple(name for name in distinct(rows, "method") if gain is None or name != ZERO_SHOT)
    methods = methods or (ZERO_SHOT,)
    number: Number = gain or (lambda row: row.accuracy)
    values = tuple(
        tuple(100 * seed_mean(where(rows, method=name, shots=k), number).mean for k in shots)
        for name in methods
    )
    datasets, seeds = len(distinct(rows, "dataset")), len({row.seed for row in rows})
    what = "Accuracy in %" if gain is None else "Accuracy above zero-shot in points"
    return Grid(
        "Few-shot methods",
        methods,
        tuple(f"k = {k}" for k in shots),
        values,
        number=".1f" if gain is None else "+.1f",
        about=f"{what}, by shots a class; mean of {datasets} data set(s) and {seeds} seed(s).",
    )


def _table(title: str, rows: Rows, cell: Callable[[Rows], str]) -> ResultTable:
    """Methods × shots."""
    shots = sorted({row.shots for row in rows})
    lines = [
        (method, *(cell(where(rows, method=method, shots=k)) for k in shots))
        for method in distinct(rows, "method")
    ]
    return ResultTable(title, lines, ("method", *(f"k = {k}" for k in shots)))


def _dataset_table(name: str, rows: Rows, gain: Number | None) -> ResultTable:
    def cell(own: Rows) -> str:
        accuracy = seed_mean(own).percent()
        return accuracy if gain is None else f"{accuracy} ({100 * seed_mean(own, gain).mean:+.1f})"

    counts = sorted({row.n_test for row in rows})
    images = "–".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    behind = "" if gain is None else ", and points above zero-shot"
    return _table(f"{name}: accuracy in % on {images} images{behind}", rows, cell)


def _cost_table(rows: Rows) -> ResultTable:
    def cell(own: Rows) -> str:
        seconds = f"{statistics.median(row.seconds for row in own):.1f}"
        fell = sum(row.fell_back for row in own)
        return f"{seconds}, fell back {fell} of {len(own)}" if fell else seconds

    return _table("Seconds to learn, median of the problems; naming images is not counted", rows, cell)


def _calibration(rows: Rows) -> tuple[float, float, float, float]:
    """Mean estimate, mean accuracy, mean distance of the two, share inside the interval; all in percent."""
    pairs = [(row.estimate or 0.0, row.accuracy) for row in rows]
    inside = [
        (row.estimate_low or 0.0) <= row.accuracy <= (1.0 if row.estimate_high is None else row.estimate_high)
        for row in rows
    ]
    numbers = (
        statistics.fmean(expected for expected, _ in pairs),
        statistics.fmean(true for _, true in pairs),
        statistics.fmean(abs(expected - true) for expected, true in pairs),
        statistics.fmean(inside),
    )
    estimate, true, off, share = (round(100 * number, 1) for number in numbers)
    return estimate, true, off, share


def _gain_over_zero_shot(rows: Rows) -> Number | None:
    """Accuracy above zero-shot on the same problem; None where zero-shot was not measured."""
    known = {(r.dataset, r.shots, r.seed): r.accuracy for r in where(rows, method=ZERO_SHOT)}
    return (lambda row: row.accuracy - known[row.dataset, row.shots, row.seed]) if known else None
