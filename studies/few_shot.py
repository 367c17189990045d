"""Few-shot methods compared: every method on every data set, number of shots and seed, each measured once.

    solver = Solver(engine, bank=bank)
    settings = GridSettings(shots=(1, 4))
    for row, fresh in run_grid(solver, {"pets": folder}, settings=settings, ledger=Ledger()): ...

A seed draws the classes, the test pictures and the largest number of shots; fewer shots are the first of
these. So methods are compared on the same pictures, and so are numbers of shots. A row of the ledger knows
all but the code that made it: after a change of a method, take its lines out. Knows nothing of tables.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.errors import EvalError, SupportError
from atlas_engine.views.heatmap import Grid
from studies.grid import Ledger, drop_repeats, key_of
from studies.methods import STUDY_METHODS, ZERO_SHOT, Solver, StudyMethod, find_study_method
from studies.problems.draw import draw_classes
from studies.problems.few_shot import Problem, StudySettings, draw_problem, with_shots
from studies.tables import ResultTable, distinct, seed_mean, where

__all__ = ["FewShotRow", "FewShotStudySettings", "calibration_table", "dataset_names", "few_shot_grid", "few_shot_tables", "require_enough_images", "run_few_shot"]

@dataclass(frozen=True, kw_only=True)
class FewShotStudySettings(Settings):
    """Which problems are drawn, which methods solve them, and how much those may learn."""

    shots: tuple[int, ...] = setting((1, 2, 4, 8, 16), help="pictures of a class to learn from", low=1)
    seeds: int = setting(3, help="problems drawn from each folder", low=1)
    methods: tuple[str, ...] = setting(
        tuple(STUDY_METHODS),
        help="methods to compare, with commas between them",
        choices=tuple(STUDY_METHODS),
    )
    max_classes: int | None = setting(None, help="most classes of a problem, drawn by seed", low=2)
    max_test: int | None = setting(None, help="most pictures to measure on, as many of each class", low=2)
    steps: int | None = setting(None, help="optimiser steps of all that train; none is the product's", low=1)
    batch: int | None = setting(None, help="pictures a step; none is the product's", low=1)
    views: int | None = setting(None, help="random views kept of each picture; none is the product's", low=1)
    share: float | None = setting(
        None, help="share of the tower that task vectors may move; none is the product's", low=0.0, high=1.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "shots", in_order=True)
        drop_repeats(self, "methods")

    def budget(self) -> FewShotConfig | None:
        """What is learned with; none where the product is to decide."""
        given = {name: getattr(self, name) for name in ("steps", "batch", "views", "share")}
        chosen = {name: value for name, value in given.items() if value is not None}
        return FewShotConfig(**chosen) if chosen else None

    def draws(self, folder: ClassFolder) -> StudySettings:
        """How a problem with all the shots is drawn from a folder."""
        classes = min(self.max_classes or len(folder.classes), len(folder.classes))
        every = classes * max(folder.counts)
        return StudySettings(
            shots=self.shots[-1], max_classes=classes, max_test=min(self.max_test or every, every)
        )


@dataclass(frozen=True)
class FewShotRow:
    """One method on one problem. `estimate` is what the method itself expected, where it says."""

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

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return asdict(self)


def run_few_shot(
    solver: Solver,
    folders: Mapping[str, ClassFolder],
    *,
    settings: FewShotStudySettings,
    ledger: Ledger,
    on_start: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[FewShotRow, bool]]:
    """Every row, and whether it was measured now; problem by problem, the first seed of all sets first.

    `on_start` is told what begins.
    """
    methods = [find_study_method(name) for name in settings.methods]
    shape = solver.engine.backbone.preprocessing
    for seed in range(settings.seeds):
        for dataset, folder in folders.items():
            on_start(f"{dataset}, reading")
            whole = draw_problem(folder, shape, settings=settings.draws(folder), seed=seed)
            for shots in settings.shots:
                problem = with_shots(whole, shots)
                for method in methods:
                    on_start(f"{dataset}, {shots} shot(s), {method.name}")
                    yield _measured(solver, method, problem, dataset=dataset, shots=shots, ledger=ledger)


def require_enough_images(folders: Mapping[str, ClassFolder], settings: FewShotStudySettings) -> None:
    """Raise before anything is measured where a class is too small. Near-duplicates are found only later."""
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


def dataset_names(paths: Sequence[Path | str]) -> list[str]:
    """A name for each folder: its own, with as many of those above it as tell it from the others.

    >>> dataset_names(["data/pacs/photo", "data/office/photo", "data/pets"])
    ['pacs/photo', 'office/photo', 'pets']
    """
    parts = [Path(path).resolve().parts for path in paths]
    for one in parts:
        if parts.count(one) > 1:
            raise EvalError(f"{Path(*one).name} is given twice. Name each folder once.")
    return ["/".join(_telling(one, [other for other in parts if other != one])) for one in parts]


def _telling(own: Sequence[str], others: Iterable[Sequence[str]]) -> Sequence[str]:
    """The fewest last parts of a path that no other path ends in."""
    longest = max((_shared(own, other) for other in others), default=0)
    return own[-longest - 1 :]


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many last parts two paths have in common."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _measured(
    solver: Solver, method: StudyMethod, problem: Problem, *, dataset: str, shots: int, ledger: Ledger
) -> tuple[FewShotRow, bool]:
    key = key_of(
        "few-shot", solver.engine.fingerprint, problem.digest, problem.seed, method.name, method.facts(solver)
    )
    fields, fresh = ledger.once(
        key, lambda: _row(solver, method, problem, dataset=dataset, shots=shots).as_dict()
    )
    return FewShotRow(**fields | {"dataset": dataset}), fresh


def _row(solver: Solver, method: StudyMethod, problem: Problem, *, dataset: str, shots: int) -> FewShotRow:
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


# TODO merged docstring: """Few-shot methods compared, as tables and a grid to draw. Pure; knows nothing of engines or files. A cell says the mean over seeds and the standard deviation over them: `41.2 ± 1.3`. A mean over data sets is taken within each seed first. A difference to zero-shot is taken on each problem, so what makes a problem hard for both is not in its spread. """
Rows = Sequence[FewShotRow]
Number = Callable[[FewShotRow], float]


def few_shot_tables(rows: Rows) -> list[ResultTable]:
    """Means over data sets, differences to zero-shot, each data set, costs, and what methods expected."""
    datasets = distinct(rows, "dataset")
    where = f"mean over {len(datasets)} data sets" if len(datasets) > 1 else datasets[0]
    sheets = [_sheet(f"Accuracy in %, {where}", rows, lambda own: seed_mean(own).shown())]
    gain = _gain(rows)
    if gain is not None:
        difference = _sheet(
            f"Difference to zero-shot in points, {where}",
            rows,
            lambda own: seed_mean(own, gain).shown(sign=True),
        )
        sheets.append(difference)
    if len(datasets) > 1:
        sheets += [_dataset_sheet(name, where(rows, dataset=name), gain) for name in datasets]
    estimates = calibration_table(rows)
    return [*sheets, _cost_sheet(rows), *([] if estimates is None else [estimates])]


def calibration_table(rows: Rows) -> ResultTable | None:
    """What methods expected of themselves beside what came true; nothing where none says."""
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
    gain, shots = _gain(rows), sorted({row.shots for row in rows})
    methods = tuple(name for name in distinct(rows, "method") if gain is None or name != ZERO_SHOT)
    methods = methods or (ZERO_SHOT,)
    number = gain or _accuracy
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


def _sheet(title: str, rows: Rows, cell: Callable[[Rows], str]) -> ResultTable:
    """Methods × shots."""
    shots = sorted({row.shots for row in rows})
    lines = [
        (method, *(cell(where(rows, method=method, shots=k)) for k in shots))
        for method in distinct(rows, "method")
    ]
    return ResultTable(title, lines, ("method", *(f"k = {k}" for k in shots)))


def _dataset_sheet(name: str, rows: Rows, gain: Number | None) -> ResultTable:
    def cell(own: Rows) -> str:
        accuracy = seed_mean(own).shown()
        return accuracy if gain is None else f"{accuracy} ({100 * seed_mean(own, gain).mean:+.1f})"

    counts = sorted({row.n_test for row in rows})
    images = "–".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    behind = "" if gain is None else ", and points above zero-shot"
    return _sheet(f"{name}: accuracy in % on {images} images{behind}", rows, cell)


def _cost_sheet(rows: Rows) -> ResultTable:
    def cell(own: Rows) -> str:
        seconds = f"{statistics.median(row.seconds for row in own):.1f}"
        fell = sum(row.fell_back for row in own)
        return f"{seconds}, fell back {fell} of {len(own)}" if fell else seconds

    return _sheet("Seconds to learn, median of the problems; naming images is not counted", rows, cell)


def _calibration(rows: Rows) -> tuple[float, float, float, float]:
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


def _gain(rows: Rows) -> Number | None:
    """Accuracy above zero-shot on the same problem, if zero-shot was measured."""
    known = {(r.dataset, r.shots, r.seed): r.accuracy for r in where(rows, method=ZERO_SHOT)}
    return (lambda row: row.accuracy - known[row.dataset, row.shots, row.seed]) if known else None


def _accuracy(row: FewShotRow) -> float:
    return row.accuracy
