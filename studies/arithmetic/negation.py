"""Methods to forget a task, compared on every target and seed beside one control: `atlas eval negate`.

    targets = {"pets": VectorTask(folder, "pets", pool)}
    for row, fresh in run_negation(engine, targets, control, settings=settings, ledger=Ledger()): ...

A row has the accuracy on the target and on the control, before (`…_zero_shot`) and after, on images that
nothing was learned from or chosen by. The control's classes and images are drawn by the same seed.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from atlas_engine.adapt.arithmetic.config import NegateConfig
from atlas_engine.adapt.arithmetic.negation import ATLAS, CONTROL, SCALAR, TARGET
from atlas_engine.adapt.methods import ZERO_SHOT
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.views.heatmap import Grid
from studies.grid import Cell, Ledger, OnStart, StudyRow, drop_repeats, ignore_note, run_grid
from studies.problems.few_shot import Problem, accuracy, recipe_accuracy
from studies.problems.unseen import PoolSettings, VectorTask, draw_unseen_problem
from studies.tables import MEAN, ResultTable, distinct, grid_values, seed_mean, where

__all__ = [
    "FORGET_METHODS",
    "ForgetMethod",
    "NegationRow",
    "NegationSettings",
    "negation_grid",
    "negation_tables",
    "run_negation",
]


class ForgetMethod(NamedTuple):
    """The engine's method, and the vectors it may use."""

    method: str
    whole_bank: bool = False  # or the target's own vector alone


FORGET_METHODS = MappingProxyType(
    {
        SCALAR: ForgetMethod(SCALAR),
        ATLAS: ForgetMethod(ATLAS),
        "atlas-bank": ForgetMethod(ATLAS, whole_bank=True),
    }
)
"""One searched coefficient; the paper's form, one vector per block; every vector of the bank per block."""


@dataclass(frozen=True, kw_only=True)
class NegationSettings(PoolSettings):
    """Which problems are drawn, and which methods are compared on them."""

    methods: tuple[str, ...] = setting(
        tuple(FORGET_METHODS), help="ways to forget", choices=tuple(FORGET_METHODS)
    )
    control_classes: int = setting(20, help="most classes of the control", low=2)
    control_test: int = setting(300, help="most images of the control to measure on", low=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "methods")

    def control(self) -> PoolSettings:
        """How the control is drawn."""
        return PoolSettings(learn=self.learn, max_classes=self.control_classes, max_test=self.control_test)


@dataclass(frozen=True)
class NegationRow(StudyRow):
    """One method on one target: accuracies of the target and the control, after and before."""

    dataset: str
    vector: str
    method: str
    seed: int
    target: float
    control: float
    target_zero_shot: float
    control_zero_shot: float
    n_target: int
    n_control: int
    kept: str  # what the method itself kept: zero-shot where it could not forget within the bound
    seconds: float

    @property
    def accuracy(self) -> float:
        """Of the target, after: the lower the better."""
        return self.target

    @property
    def kept_share(self) -> float:
        """The control's accuracy after, as a share of that before."""
        return self.control / self.control_zero_shot if self.control_zero_shot else 1.0


def run_negation(
    engine: Atlas,
    targets: Mapping[str, VectorTask],
    control: ClassFolder,
    *,
    settings: NegationSettings,
    config: NegateConfig | None = None,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[NegationRow, bool]]:
    """Every row, and whether it was measured now. `config` is how methods learn, by default the engine's."""
    shape = engine.backbone.preprocessing

    @functools.lru_cache(maxsize=1)  # all targets of a seed share its control
    def control_problem(seed: int) -> Problem:
        return draw_unseen_problem(control, None, shape, settings=settings.control(), seed=seed)

    def cells_of(dataset: str, task: VectorTask, seed: int) -> Iterator[Cell[NegationRow]]:
        problem = draw_unseen_problem(task.folder, task.pool, shape, settings=settings, seed=seed)
        trial = _NegationTrial(
            engine, dataset, task, problem, control_problem(seed), config or NegateConfig()
        )
        for name in settings.methods:
            yield trial.cell(name)

    return run_grid(targets, cells_of, seeds=settings.seeds, ledger=ledger, on_start=on_start)


@dataclass(frozen=True, eq=False)
class _NegationTrial:
    """One target beside one control."""

    engine: Atlas
    dataset: str
    task: VectorTask
    problem: Problem
    control: Problem
    config: NegateConfig

    def cell(self, name: str) -> Cell[NegationRow]:
        bank, seed = self.bank(FORGET_METHODS[name]), self.problem.seed
        problems = (self.problem.digest, self.control.digest, seed)
        facts = (bank.fingerprint, bank.storage, self.task.vector, self.config.as_dict())
        return Cell(
            f"{self.dataset}, seed {seed}, {name}",
            ("negation", self.engine.fingerprint, *problems, name, *facts),
            lambda: self.measure(name).as_dict(),
            NegationRow,
            {"dataset": self.dataset},
        )

    def bank(self, chosen: ForgetMethod) -> TaskVectorBank:
        """The vectors that a method may use."""
        return self.engine.bank if chosen.whole_bank else self.engine.bank.select([self.task.vector])

    @cached_property
    def zero_shot(self) -> tuple[float, float]:
        """The base model's accuracy on the target and on the control."""
        visual = self.engine.backbone.visual
        return accuracy(self.engine, visual, self.problem), accuracy(self.engine, visual, self.control)

    def measure(self, name: str) -> NegationRow:
        chosen, engine, seed = FORGET_METHODS[name], self.engine, self.problem.seed
        bank, start = self.bank(chosen), time.perf_counter()
        run = engine.negate(
            self.problem.support,
            self.control.support,
            vector=self.task.vector,
            method=chosen.method,
            config=self.config,
            bank=bank,
            seed=seed,
        )
        result = run.result()
        seconds = time.perf_counter() - start
        return NegationRow(
            dataset=self.dataset,
            vector=self.task.vector,
            method=name,
            seed=seed,
            target=recipe_accuracy(engine, result.recipe, self.problem, TARGET, bank=bank),
            control=recipe_accuracy(engine, result.recipe, self.control, CONTROL, bank=bank),
            target_zero_shot=self.zero_shot[0],
            control_zero_shot=self.zero_shot[1],
            n_target=len(self.problem.labels),
            n_control=len(self.control.labels),
            kept=ZERO_SHOT if result.fell_back else name,
            seconds=seconds,
        )


# ---- the report

Rows = Sequence[NegationRow]
Number = Callable[[NegationRow], float]


def negation_tables(rows: Rows) -> list[ResultTable]:
    """Means over targets, then the target and the control of each."""
    lines: list[tuple[object, ...]] = [
        (
            ZERO_SHOT,
            seed_mean(rows, lambda row: row.target_zero_shot).percent(),
            seed_mean(rows, lambda row: row.control_zero_shot).percent(),
            "100.0",
            "–",
            "–",
        )
    ]
    for method in distinct(rows, "method"):
        own = where(rows, method=method)
        lines.append(
            (
                method,
                seed_mean(own).percent(),
                seed_mean(own, lambda row: row.control).percent(),
                seed_mean(own, lambda row: row.kept_share).percent(),
                f"{sum(row.kept == ZERO_SHOT for row in own)} of {len(own)}",
                f"{statistics.median(row.seconds for row in own):.0f}",
            )
        )
    count = len(distinct(rows, "dataset"))
    title = f"Forgetting: accuracy in %, mean over {count} target(s), each beside the control"
    columns = ("method", "target (lower)", "control", "control kept %", "nothing forgotten", "seconds")
    return [
        ResultTable(title, lines, columns),
        _by_target("Target", rows, lambda row: row.target, lambda row: row.target_zero_shot),
        _by_target("Control", rows, lambda row: row.control, lambda row: row.control_zero_shot),
    ]


def negation_grid(rows: Rows) -> Grid:
    """Methods × targets: points of target accuracy that are lost."""

    def points(own: Rows) -> float:
        return 100 * seed_mean(own, lambda row: row.target - row.target_zero_shot).mean

    seeds = len({row.seed for row in rows})
    return Grid(
        "What is forgotten",
        distinct(rows, "method"),
        (*distinct(rows, "dataset"), MEAN),
        grid_values(rows, points, row="method", column="dataset"),
        about=f"Accuracy of the target against zero-shot in points; mean of {seeds} seed(s).",
    )


def _by_target(what: str, rows: Rows, after: Number, before: Number) -> ResultTable:
    targets, methods = distinct(rows, "dataset"), distinct(rows, "method")
    lines: list[tuple[object, ...]] = [
        (ZERO_SHOT, *(seed_mean(where(rows, dataset=target), before).percent() for target in targets))
    ]
    for method in methods:
        cells = (seed_mean(where(rows, dataset=name, method=method), after).percent() for name in targets)
        lines.append((method, *cells))
    return ResultTable(f"{what} accuracy in %, by target", lines, ("method", *targets))
