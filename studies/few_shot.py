"""Few-shot methods compared: every method on every data set, number of shots and seed, each measured once.

    solver = Solver(engine, bank=bank)
    settings = GridSettings(shots=(1, 4))
    for row, fresh in run_grid(solver, {"pets": folder}, settings=settings, ledger=Ledger()): ...

A seed draws the classes, the test pictures and the largest number of shots; fewer shots are the first of
these. So methods are compared on the same pictures, and so are numbers of shots. A row of the ledger knows
all but the code that made it: after a change of a method, take its lines out. Knows nothing of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.errors import SupportError
from studies.choices import keep_once
from studies.ledger import Ledger, key_of
from studies.methods import STUDY_METHODS, Solver, StudyMethod, find_study_method
from studies.problems import Problem, StudySettings, draw_problem, with_shots
from studies.zero_shot import draw_classes

__all__ = ["GridRow", "GridSettings", "require_pictures", "run_grid"]


@dataclass(frozen=True, kw_only=True)
class GridSettings(Settings):
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
        keep_once(self, "shots", in_order=True)
        keep_once(self, "methods")

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
class GridRow:
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


def run_grid(
    solver: Solver,
    folders: Mapping[str, ClassFolder],
    *,
    settings: GridSettings,
    ledger: Ledger,
    on_start: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[GridRow, bool]]:
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


def require_pictures(folders: Mapping[str, ClassFolder], settings: GridSettings) -> None:
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


def _measured(
    solver: Solver, method: StudyMethod, problem: Problem, *, dataset: str, shots: int, ledger: Ledger
) -> tuple[GridRow, bool]:
    key = key_of(
        "few-shot", solver.engine.fingerprint, problem.digest, problem.seed, method.name, method.facts(solver)
    )
    fields, fresh = ledger.once(
        key, lambda: _row(solver, method, problem, dataset=dataset, shots=shots).as_dict()
    )
    return GridRow(**fields | {"dataset": dataset}), fresh


def _row(solver: Solver, method: StudyMethod, problem: Problem, *, dataset: str, shots: int) -> GridRow:
    answer = method.solve(solver, problem)
    expected = answer.estimate
    return GridRow(
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
