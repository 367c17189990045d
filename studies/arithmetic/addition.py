"""Methods to make one model for several tasks, compared: `atlas eval add`.

    tasks = {"mnist": VectorTask(folder, "mnist", pool), …}
    for rows, fresh in run_addition(engine, tasks, settings=AdditionSettings(), ledger=Ledger()): ...

A seed draws the classes and images of every task; every method then makes one model for all of them, and has
a row for each. `normalised` is its accuracy over that of the task's own fine-tuned model, θ0 + τ, on the same
images, which nothing was learned from or chosen by.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from atlas_engine.adapt.arithmetic.addition import ADAMERGING, ATLAS, OWN, SCALAR, UNIFORM
from atlas_engine.adapt.arithmetic.config import AddConfig
from atlas_engine.adapt.methods import ZERO_SHOT
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.edit import ties_contributions
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.linearised import tower_at
from atlas_engine.config import setting
from atlas_engine.engine import Atlas
from atlas_engine.views.heatmap import Grid
from studies.grid import Cell, Ledger, OnStart, StudyRow, drop_repeats, ignore_note, key_of, run_grid
from studies.problems.few_shot import Problem, accuracy, recipe_accuracy
from studies.problems.unseen import PoolSettings, VectorTask, draw_unseen_problem
from studies.tables import MEAN, ResultTable, distinct, grid_values, seed_mean, where

__all__ = ["AdditionRow", "AdditionSettings", "addition_grid", "addition_tables", "run_addition"]

TIES, ATLAS_TIES = "ties", "atlas+ties"
ADD_METHODS = (ZERO_SHOT, UNIFORM, SCALAR, TIES, ADAMERGING, ATLAS, ATLAS_TIES)
"""The last learns coefficients of each vector's contribution to the merged one of TIES, from its scale on."""

TIES_MOST, TIES_GRID, TIES_LR = 3.0, 0.2, 0.1
"""For contributions to TIES: its authors search its scale up to 3, and λ moves in proportion to it."""


@dataclass(frozen=True, kw_only=True)
class AdditionSettings(PoolSettings):
    """Which problems are drawn, and which methods are compared on them."""

    methods: tuple[str, ...] = setting(ADD_METHODS, help="ways to add", choices=ADD_METHODS)

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "methods")


@dataclass(frozen=True)
class AdditionRow(StudyRow):
    """One method on one of the tasks that its model was made for."""

    dataset: str
    vector: str
    method: str
    seed: int
    accuracy: float
    normalised: float
    own: float  # accuracy of the task's own model
    zero_shot: float
    n_test: int
    tasks: int
    seconds: float  # of the method, for all its tasks


def run_addition(
    engine: Atlas,
    tasks: Mapping[str, VectorTask],
    *,
    settings: AdditionSettings,
    config: AddConfig | None = None,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[list[AdditionRow], bool]]:
    """The rows of each method, seed by seed, and whether they were measured now.

    `config` is how all methods learn, by default the engine's; those with TIES have a rate and a search of
    their own.
    """
    shape = engine.backbone.preprocessing

    def cells_of(_: str, given: Mapping[str, VectorTask], seed: int) -> Iterator[Cell[list[AdditionRow]]]:
        problems = {
            name: draw_unseen_problem(task.folder, task.pool, shape, settings=settings, seed=seed)
            for name, task in given.items()
        }
        trial = _AdditionTrial(engine, dict(given), problems, config or AddConfig(), seed, ledger)
        for method in settings.methods:
            yield trial.cell(method)

    return run_grid({"all tasks": tasks}, cells_of, seeds=settings.seeds, ledger=ledger, on_start=on_start)


@dataclass(frozen=True, eq=False)
class _AdditionTrial:
    """All tasks under one seed."""

    engine: Atlas
    tasks: dict[str, VectorTask]
    problems: dict[str, Problem]
    config: AddConfig
    seed: int
    ledger: Ledger

    def cell(self, method: str) -> Cell[list[AdditionRow]]:
        def rows(accuracy: dict[str, float], seconds: float) -> list[AdditionRow]:
            return self.rows(method, accuracy, seconds)

        return Cell(f"seed {self.seed}, {method}", self.facts(method), lambda: self.measure(method), rows)

    def facts(self, what: str) -> tuple[object, ...]:
        bank = self.bank()
        digests = [problem.digest for problem in self.problems.values()]
        facts = (list(self.problems), bank.fingerprint, bank.storage, self.config.as_dict(), self.seed)
        return ("addition", self.engine.fingerprint, digests, what, *facts)

    def bank(self) -> TaskVectorBank:
        """The tasks' own vectors."""
        return self.engine.bank.select(dict.fromkeys(task.vector for task in self.tasks.values()))

    def measure(self, method: str) -> dict[str, Any]:
        """Accuracies by task, and the seconds that the method took."""
        if method == ZERO_SHOT:
            return {"accuracy": self.baselines()["zero_shot"], "seconds": 0.0}
        start = time.perf_counter()
        bank, config, engine_method = self.bank(), self.config, method
        if method in (TIES, ATLAS_TIES):
            bank = TaskVectorBank.from_vectors(ties_contributions(bank), device=bank.device)
            config = replace(config, most=TIES_MOST, grid=TIES_GRID, lr=TIES_LR)
            engine_method = SCALAR if method == TIES else ATLAS
        supports = {name: problem.support for name, problem in self.problems.items()}
        run = self.engine.add(supports, method=engine_method, config=config, bank=bank, seed=self.seed)
        recipe = run.result().recipe
        seconds = time.perf_counter() - start
        accuracies = {
            name: recipe_accuracy(self.engine, recipe, problem, name, bank=bank)
            for name, problem in self.problems.items()
        }
        return {"accuracy": accuracies, "seconds": seconds}

    def rows(self, method: str, accuracies: dict[str, float], seconds: float) -> list[AdditionRow]:
        """A row for each task."""
        baselines, rows = self.baselines(), []
        for name, problem in self.problems.items():
            own = baselines["own"][name]
            rows.append(
                AdditionRow(
                    dataset=name,
                    vector=self.tasks[name].vector,
                    method=method,
                    seed=self.seed,
                    accuracy=accuracies[name],
                    normalised=accuracies[name] / own if own else 0.0,
                    own=own,
                    zero_shot=baselines["zero_shot"][name],
                    n_test=len(problem.labels),
                    tasks=len(self.problems),
                    seconds=seconds,
                )
            )
        return rows

    def baselines(self) -> dict[str, Any]:
        """What every method is compared with: the accuracies of each task's own model, and of zero-shot."""
        measured, _ = self.ledger.once(
            key_of(*self.facts(OWN)),
            lambda: {"own": self.own_accuracies(), "zero_shot": self.zero_shot_accuracies()},
        )
        return measured

    def own_accuracies(self) -> dict[str, float]:
        """Of each task's own vector at λ = 1, by task."""
        visual, found = self.engine.backbone.visual, {}
        for name, problem in self.problems.items():
            own = self.engine.bank.select([self.tasks[name].vector])
            composer = Composer(dict(visual.named_parameters()), own)
            tower = tower_at(visual, composer, composer.initial(1.0))
            found[name] = accuracy(self.engine, tower, problem)
        return found

    def zero_shot_accuracies(self) -> dict[str, float]:
        """Of the base model by task."""
        visual = self.engine.backbone.visual
        return {name: accuracy(self.engine, visual, problem) for name, problem in self.problems.items()}


# ---- the report

Rows = Sequence[AdditionRow]
Number = Callable[[AdditionRow], float]


def addition_tables(rows: Rows) -> list[ResultTable]:
    """Means over tasks, then accuracy and normalised accuracy of each."""
    count = len(distinct(rows, "dataset"))
    lines: list[tuple[object, ...]] = []
    for method in distinct(rows, "method"):
        own = where(rows, method=method)
        seconds = f"{statistics.median(row.seconds for row in own):.0f}"
        lines.append((method, seed_mean(own).percent(), seed_mean(own, _normalised).percent(), seconds))
    lines.append((f"{OWN} (a model each)", seed_mean(rows, _own).percent(), "100.0", "–"))
    title = f"One model for {count} tasks: means over the tasks in %"
    return [
        ResultTable(title, lines, ("method", "accuracy", "normalised", "seconds")),
        _by_task("Accuracy in %, by task", rows, lambda row: row.accuracy, with_own=True),
        _by_task("Normalised accuracy in %, by task", rows, _normalised),
    ]


def addition_grid(rows: Rows) -> Grid:
    """Methods × tasks: normalised accuracy in %."""

    def percent(own: Rows) -> float:
        return 100 * seed_mean(own, _normalised).mean

    seeds = len({row.seed for row in rows})
    return Grid(
        "One model for all tasks",
        distinct(rows, "method"),
        (*distinct(rows, "dataset"), MEAN),
        grid_values(rows, percent, row="method", column="dataset"),
        number=".1f",
        about=f"Accuracy in % of that of the task's own fine-tuned model; mean of {seeds} seed(s).",
    )


def _by_task(title: str, rows: Rows, number: Number, *, with_own: bool = False) -> ResultTable:
    tasks = distinct(rows, "dataset")
    lines: list[tuple[object, ...]] = [
        (method, *(seed_mean(where(rows, dataset=task, method=method), number).percent() for task in tasks))
        for method in distinct(rows, "method")
    ]
    if with_own:
        lines.append((OWN, *(seed_mean(where(rows, dataset=task), _own).percent() for task in tasks)))
    return ResultTable(title, lines, ("method", *tasks))


def _own(row: AdditionRow) -> float:
    return row.own


def _normalised(row: AdditionRow) -> float:
    return row.normalised
