"""Ways to forget, compared: each on every target and seed, with one control. Knows nothing of tables.

    targets = {"pets": Target(folder, "pets", pool)}
    for row, fresh in run_negation(engine, targets, control, settings=settings, ledger=Ledger()): ...

A row says the accuracy on the target and on the control, before (`…_zero_shot`) and after, on pictures that
nothing was learned from or chosen by. The control's classes and pictures are drawn by the same seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from atlas_engine.adapt.arithmetic.config import NegateConfig
from atlas_engine.adapt.arithmetic.negation import ATLAS, CONTROL, SCALAR, TARGET
from atlas_engine.adapt.arithmetic.recipes import task_columns
from atlas_engine.adapt.verdict import ZERO_SHOT
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.recipe import Recipe
from studies.grid import Ledger, drop_repeats, key_of
from studies.problems.few_shot import Problem, accuracy, share_correct
from studies.problems.unseen import PoolSettings, UnseenPool, draw_unseen_problem

__all__ = ["FORGET_METHODS", "ForgetMethod", "NegationRow", "NegationSettings", "VectorTask", "recipe_accuracy", "run_negation"]


class ForgetMethod(NamedTuple):
    """A way to forget: how the engine is asked, and with which vectors."""

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
    """Which problems are drawn, and which ways are compared on them."""

    methods: tuple[str, ...] = setting(tuple(FORGET_METHODS), help="ways to forget", choices=tuple(FORGET_METHODS))
    control_classes: int = setting(20, help="most classes of the control", low=2)
    control_test: int = setting(300, help="most pictures of the control to measure on", low=2)
    keep: float = setting(0.95, help="share of the control's zero-shot accuracy to keep", low=0, high=1)
    steps: int | None = setting(None, help="optimiser steps; none is the product's", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "methods")

    def config(self) -> NegateConfig:
        """How the engine is asked."""
        chosen = NegateConfig(keep=self.keep)
        return chosen if self.steps is None else NegateConfig(keep=self.keep, steps=self.steps)

    def control(self) -> PoolSettings:
        """How the control is drawn."""
        return PoolSettings(learn=self.learn, max_classes=self.control_classes, max_test=self.control_test)


@dataclass(frozen=True, eq=False)
class VectorTask:
    """A folder to forget, its own vector, and what that has not learned from (None: all, as far as known)."""

    folder: ClassFolder
    vector: str
    pool: UnseenPool | None = None


@dataclass(frozen=True)
class NegationRow:
    """One way on one target: accuracies of the target and the control, after and before."""

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
    kept: str  # what the way itself kept: zero-shot where it could not forget within the bound
    seconds: float

    @property
    def accuracy(self) -> float:
        """Of the target, after: the lower the better."""
        return self.target

    @property
    def kept_share(self) -> float:
        """The control's accuracy after, as a share of that before."""
        return self.control / self.control_zero_shot if self.control_zero_shot else 1.0

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return asdict(self)


def run_negation(
    engine: Atlas,
    targets: Mapping[str, VectorTask],
    control: ClassFolder,
    *,
    settings: NegationSettings,
    ledger: Ledger,
    on_start: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[NegationRow, bool]]:
    """Every row, the first seed of all targets first, and whether it was measured now."""
    shape = engine.backbone.preprocessing
    for seed in range(settings.seeds):
        on_start("control, reading")
        kept = draw_unseen_problem(control, None, shape, settings=settings.control(), seed=seed)
        for dataset, target in targets.items():
            problem = draw_unseen_problem(target.folder, target.pool, shape, settings=settings, seed=seed)
            sitting = _Sitting(engine, target, problem, kept, settings.config())
            for name in settings.methods:
                on_start(f"{dataset}, seed {seed}, {name}")
                yield _measured(sitting, dataset, name, ledger)


@dataclass(frozen=True, eq=False)
class _Sitting:
    """One target beside one control."""

    engine: Atlas
    target: VectorTask
    problem: Problem
    control: Problem
    config: NegateConfig

    def bank(self, way: ForgetMethod) -> TaskVectorBank:
        return self.engine.bank if way.whole_bank else self.engine.bank.select([self.target.vector])

    @cached_property
    def zero_shot(self) -> tuple[float, float]:
        visual = self.engine.backbone.visual
        return accuracy(self.engine, visual, self.problem), accuracy(self.engine, visual, self.control)

    def row(self, dataset: str, name: str) -> NegationRow:
        way, engine, seed = FORGET_METHODS[name], self.engine, self.problem.seed
        bank, start = self.bank(way), time.perf_counter()
        run = engine.negate(
            self.problem.support,
            self.control.support,
            vector=self.target.vector,
            method=way.method,
            config=self.config,
            bank=bank,
            seed=seed,
        )
        result = run.result()
        seconds = time.perf_counter() - start
        return NegationRow(
            dataset=dataset,
            vector=self.target.vector,
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


def recipe_accuracy(engine: Atlas, recipe: Recipe, problem: Problem, task: str, *, bank: TaskVectorBank) -> float:
    """The share of the problem's test pictures that a recipe names right among the task's own classes."""
    logits = engine.logits(recipe, problem.squares, bank=bank)[:, task_columns(recipe, task)]
    return share_correct(logits, problem.labels)


def _measured(sitting: _Sitting, dataset: str, name: str, ledger: Ledger) -> tuple[NegationRow, bool]:
    bank = sitting.bank(FORGET_METHODS[name])
    problems = (sitting.problem.digest, sitting.control.digest, sitting.problem.seed)
    facts = (bank.fingerprint, bank.storage, sitting.target.vector, sitting.config.as_dict())
    key = key_of("negation", sitting.engine.fingerprint, *problems, name, *facts)
    fields, fresh = ledger.once(key, lambda: sitting.row(dataset, name).as_dict())
    return NegationRow(**fields | {"dataset": dataset}), fresh
