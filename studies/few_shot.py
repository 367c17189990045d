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
from functools import cache

from atlas_engine.adapt.methods import FEW_SHOT_METHODS
from atlas_engine.adapt.settings import FewShotConfig
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.errors import ConfigError, SupportError
from atlas_engine.views.heatmap import Grid
from studies.banks.random_bank import random_bank
from studies.grid import Cell, Ledger, OnStart, StudyRow, drop_repeats, ignore_note, run_grid
from studies.learning import LearningSettings
from studies.methods import AUTO, STUDY_METHODS, ZERO_SHOT, Solver, StudyMethod, find_study_method
from studies.problems.draw import draw_classes
from studies.problems.few_shot import Problem, StudySettings, draw_problem, with_shots
from studies.tables import ResultTable, clustered_mean, distinct, seed_mean, where
from studies.tower_training import vectors_made_from, without_own_vectors

__all__ = [
    "RANDOM",
    "FewShotRow",
    "FewShotStudySettings",
    "calibration_table",
    "control_table",
    "count_rows",
    "few_shot_grid",
    "few_shot_tables",
    "is_mixing",
    "require_enough_images",
    "run_few_shot",
]

RANDOM = ", random bank"
"""What the names of methods with the random bank end in."""


@dataclass(frozen=True, kw_only=True)
class FewShotStudySettings(LearningSettings):
    """Which problems are drawn, which methods solve them, and how much those may learn."""

    shots: tuple[int, ...] = setting((1, 2, 4, 8, 16), help="images of a class to learn from", low=1)
    drawn_shots: int | None = setting(
        None,
        help="images of a class that a problem is drawn with; fewer shots are the first of these",
        low=1,
        unset="the most of the shots",
    )
    seeds: int = setting(3, help="problems drawn from each folder", low=1)
    methods: tuple[str, ...] = setting(
        tuple(STUDY_METHODS),
        help="methods to compare, with commas between them",
        choices=tuple(STUDY_METHODS),
    )
    max_classes: int | None = setting(None, help="most classes of a problem, drawn by seed", low=2)
    max_test: int | None = setting(None, help="most images to measure on, as many of each class", low=2)
    validation: int = setting(
        0, help="more labelled images of a class, by which what trains keeps its best epoch", low=0
    )
    tune_lr: float | None = setting(
        None, help="peak learning rate of all that fine-tunes; none is each method's own", low=0.0
    )
    control: bool = setting(
        False, help="measure what mixes task vectors with a random bank of the same norms too"
    )
    leave_own_out: bool = setting(
        False, help="leave a folder's own task vector out of the bank that it is measured with"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "shots", in_order=True)
        drop_repeats(self, "methods")
        if self.drawn_shots is not None and self.drawn_shots < self.shots[-1]:
            raise ConfigError(
                f"drawn_shots is {self.drawn_shots} but shots go up to {self.shots[-1]}. Draw as many."
            )

    @property
    def most_shots(self) -> int:
        """Images of a class that a problem is drawn with."""
        return self.drawn_shots or self.shots[-1]

    def budget(self) -> FewShotConfig | None:
        """The config of all that train; None leaves it to the product."""
        chosen = self.given()
        return FewShotConfig(**chosen) if chosen else None

    def draws(self, folder: ClassFolder) -> StudySettings:
        """How a problem with the largest number of shots is drawn from a folder."""
        classes = min(self.max_classes or len(folder.classes), len(folder.classes))
        every = classes * max(folder.counts)
        return StudySettings(
            shots=self.most_shots, max_classes=classes, max_test=min(self.max_test or every, every)
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
    control: Callable[[Solver], Solver] = cache(_with_random_bank)

    def cells_of(dataset: str, folder: ClassFolder, seed: int) -> Iterator[Cell[FewShotRow]]:
        own, draws = _solver_for(solver, folder) if settings.leave_own_out else solver, settings.draws(folder)
        largest = draw_problem(folder, shape, settings=draws, validation=settings.validation, seed=seed)
        for shots in settings.shots:
            problem = with_shots(largest, shots)
            for method in methods:
                yield _cell(own, method, problem, dataset=dataset, shots=shots)
                if settings.control and is_mixing(method.name):
                    yield _cell(control(own), method, problem, dataset=dataset, shots=shots, ending=RANDOM)

    return run_grid(folders, cells_of, seeds=settings.seeds, ledger=ledger, on_start=on_start)


def is_mixing(name: str) -> bool:
    """Whether a method's answers depend on the task vectors."""
    return name in FEW_SHOT_METHODS and FEW_SHOT_METHODS[name].uses_task_vectors


def count_rows(settings: FewShotStudySettings, *, folders: int) -> int:
    """How many rows `run_few_shot` gives."""
    mixing = sum(map(is_mixing, settings.methods)) if settings.control else 0
    return folders * settings.seeds * len(settings.shots) * (len(settings.methods) + mixing)


def _solver_for(solver: Solver, folder: ClassFolder) -> Solver:
    """The same solver without the vectors that were made from this folder."""
    if solver.bank is None or not vectors_made_from(solver.bank, folder):
        return solver
    return solver.with_bank(without_own_vectors(solver.bank, folder))


def _with_random_bank(solver: Solver) -> Solver:
    """The same solver with random vectors of the same norms."""
    return solver.with_bank(random_bank(solver.engine.bank if solver.bank is None else solver.bank))


def _cell(
    solver: Solver, method: StudyMethod, problem: Problem, *, dataset: str, shots: int, ending: str = ""
) -> Cell[FewShotRow]:
    model = solver.engine.fingerprint
    return Cell(
        f"{dataset}, {shots} shot(s), {method.name}{ending}",
        ("few-shot", model, problem.digest, problem.seed, method.name, solver.facts(method)),
        lambda: _measure(solver, method, problem, dataset=dataset, shots=shots).as_dict(),
        FewShotRow,
        {"dataset": dataset, "method": method.name + ending},
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
    most = settings.most_shots + settings.validation
    for dataset, folder in folders.items():
        for seed in range(settings.seeds):
            drawn = draw_classes(folder, settings.max_classes, seed=seed)
            for name, count in zip(drawn.classes, drawn.counts, strict=True):
                if count <= most:
                    raise SupportError(
                        f"{dataset}: class '{name}' has {count} image(s), but {_images_needed(settings)} and "
                        f"one to measure on need {most + 1}. Add {most + 1 - count}, or pass fewer shots."
                    )


def _images_needed(settings: FewShotStudySettings) -> str:
    shots = f"{settings.most_shots} shot(s)"
    return f"{shots}, {settings.validation} to validate by" if settings.validation else shots


# ---- the report

CLUSTERED = "± is the standard error over data sets"

Rows = Sequence[FewShotRow]
Number = Callable[[FewShotRow], float]


def few_shot_tables(rows: Rows) -> list[ResultTable]:
    """Means over data sets, differences to zero-shot, each data set, costs, and what methods expected.

    A difference to zero-shot is taken on each problem, so its spread does not contain how hard a problem is.
    """
    datasets = distinct(rows, "dataset")
    over = f"mean over {len(datasets)} data sets" if len(datasets) > 1 else datasets[0]
    tables = [_table(f"Accuracy in %, {over}", rows, lambda own: seed_mean(own).percent())]
    if where(rows, method=AUTO) and len(datasets) > 1:
        tables.append(_lead_table(rows, AUTO))
    control = control_table(rows)
    tables += [] if control is None else [control]
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


def control_table(rows: Rows) -> ResultTable | None:
    """Accuracy with the real bank less that with the random one, on the same problem; None without one."""
    mixing = [name for name in distinct(rows, "method") if where(rows, method=name + RANDOM)]
    control = {(r.dataset, r.method, r.shots, r.seed): r.accuracy for r in rows if r.method.endswith(RANDOM)}
    if not mixing:
        return None
    return _table(
        f"Real bank above random bank of the same norms, in points; {CLUSTERED}",
        [row for row in rows if row.method in mixing],
        lambda own: clustered_mean(
            own, lambda row: row.accuracy - control[row.dataset, row.method + RANDOM, row.shots, row.seed]
        ).percent(sign=True),
    )


def _lead_table(rows: Rows, leader: str) -> ResultTable:
    """How far a method is ahead of every other on the same problems."""
    known = {(r.dataset, r.shots, r.seed): r.accuracy for r in where(rows, method=leader)}
    return _table(
        f"`{leader}` above each method, in points; {CLUSTERED}",
        [row for row in rows if row.method != leader],
        lambda own: clustered_mean(
            own, lambda row: known[row.dataset, row.shots, row.seed] - row.accuracy
        ).percent(sign=True),
    )


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
