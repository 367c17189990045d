"""Ways to make one model for several tasks, compared. Knows nothing of tables.

    tasks = {"mnist": Target(folder, "mnist", pool), …}
    for rows, fresh in run_addition(engine, tasks, settings=AdditionSettings(), ledger=Ledger()): ...

A seed draws the classes and pictures of every task; every way then makes one model for all of them, and has a
row for each. `normalised` is its accuracy over that of the task's own fine-tuned model, θ0 + τ, on the same
pictures, that nothing was learned from or chosen by.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from atlas_engine.adapt.arithmetic.addition import ADAMERGING, ATLAS, OWN, SCALAR, UNIFORM
from atlas_engine.adapt.arithmetic.config import AddConfig
from atlas_engine.adapt.verdict import ZERO_SHOT
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.edit import ties_contributions
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import materialise
from atlas_engine.config import setting
from atlas_engine.engine import Atlas
from studies.grid import Ledger, drop_repeats, key_of
from studies.problems.few_shot import Problem, accuracy, recipe_accuracy
from studies.problems.unseen import PoolSettings, VectorTask, draw_unseen_problem

__all__ = ["AdditionRow", "AdditionSettings", "run_addition"]

TIES, ATLAS_TIES = "ties", "atlas+ties"
ADD_METHODS = (ZERO_SHOT, UNIFORM, SCALAR, TIES, ADAMERGING, ATLAS, ATLAS_TIES)
"""The last learns coefficients of what each vector gives to the merged one of TIES, from its scale on."""

MOST, GRID, LR = 3.0, 0.2, 0.1
"""For shares in TIES: its authors search its scale up to 3, and λ moves as much more as it is larger."""


@dataclass(frozen=True, kw_only=True)
class AdditionSettings(PoolSettings):
    """Which problems are drawn, and which ways are compared on them."""

    methods: tuple[str, ...] = setting(ADD_METHODS, help="ways to add", choices=ADD_METHODS)
    steps: int | None = setting(None, help="optimiser steps of all that learn; none is the product's", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "methods")

    def config(self) -> AddConfig:
        """How the engine is asked."""
        return AddConfig() if self.steps is None else AddConfig(steps=self.steps)


@dataclass(frozen=True)
class AdditionRow:
    """One way on one of the tasks that it was made for. `own` is the accuracy of the task's own model."""

    dataset: str
    vector: str
    method: str
    seed: int
    accuracy: float
    normalised: float
    own: float
    zero_shot: float
    n_test: int
    tasks: int
    seconds: float  # of the way, for all its tasks

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return asdict(self)


def run_addition(
    engine: Atlas,
    targets: Mapping[str, VectorTask],
    *,
    settings: AdditionSettings,
    ledger: Ledger,
    on_start: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[list[AdditionRow], bool]]:
    """The rows of each way, seed by seed, and whether they were measured now."""
    shape = engine.backbone.preprocessing
    for seed in range(settings.seeds):
        on_start(f"seed {seed}, reading")
        problems = {
            name: draw_unseen_problem(one.folder, one.pool, shape, settings=settings, seed=seed)
            for name, one in targets.items()
        }
        sitting = _Sitting(engine, dict(targets), problems, settings.config(), seed, ledger)
        for method in settings.methods:
            on_start(f"seed {seed}, {method}")
            yield sitting.rows(method)


@dataclass(frozen=True, eq=False)
class _Sitting:
    """All tasks under one seed."""

    engine: Atlas
    targets: dict[str, VectorTask]
    problems: dict[str, Problem]
    config: AddConfig
    seed: int
    ledger: Ledger

    def rows(self, method: str) -> tuple[list[AdditionRow], bool]:
        found, fresh = self.ledger.once(self.key(method), lambda: self.measured(method))
        fixed = self.fixed()
        rows = []
        for name, problem in self.problems.items():
            share, own = found["accuracy"][name], fixed["own"][name]
            rows.append(
                AdditionRow(
                    dataset=name,
                    vector=self.targets[name].vector,
                    method=method,
                    seed=self.seed,
                    accuracy=share,
                    normalised=share / own if own else 0.0,
                    own=own,
                    zero_shot=fixed["zero_shot"][name],
                    n_test=len(problem.labels),
                    tasks=len(self.problems),
                    seconds=found["seconds"],
                )
            )
        return rows, fresh

    def key(self, what: str) -> str:
        bank = self.bank()
        digests = [problem.digest for problem in self.problems.values()]
        facts = (list(self.problems), bank.fingerprint, bank.storage, self.config.as_dict(), self.seed)
        return key_of("addition", self.engine.fingerprint, digests, what, *facts)

    def bank(self) -> TaskVectorBank:
        return self.engine.bank.select(dict.fromkeys(one.vector for one in self.targets.values()))

    def fixed(self) -> dict[str, Any]:
        """What every way is compared with: zero-shot, and the task's own model."""
        compared, _ = self.ledger.once(
            self.key(OWN), lambda: {"own": self.by_own(), "zero_shot": self.by_names()}
        )
        return compared

    def by_names(self) -> dict[str, float]:
        visual = self.engine.backbone.visual
        return {name: accuracy(self.engine, visual, one) for name, one in self.problems.items()}

    def by_own(self) -> dict[str, float]:
        visual, found = self.engine.backbone.visual, {}
        for name, problem in self.problems.items():
            composer = Composer(
                dict(visual.named_parameters()), self.engine.bank.select([self.targets[name].vector])
            )
            tower = materialise(visual, composer.compose(composer.initial(1.0)))
            found[name] = accuracy(self.engine, tower, problem)
        return found

    def measured(self, method: str) -> dict[str, Any]:
        """Accuracies by task, and the seconds that the way took."""
        if method == ZERO_SHOT:
            return {"accuracy": self.fixed()["zero_shot"], "seconds": 0.0}
        start = time.perf_counter()
        bank, config, asked = self.bank(), self.config, method
        if method in (TIES, ATLAS_TIES):
            bank = TaskVectorBank.from_vectors(ties_contributions(bank), device=bank.device)
            config, asked = replace(config, most=MOST, grid=GRID, lr=LR), SCALAR if method == TIES else ATLAS
        supports = {name: one.support for name, one in self.problems.items()}
        run = self.engine.add(supports, method=asked, config=config, bank=bank, seed=self.seed)
        recipe = run.result().recipe
        seconds = time.perf_counter() - start
        shares = {
            name: recipe_accuracy(self.engine, recipe, problem, name, bank=bank)
            for name, problem in self.problems.items()
        }
        return {"accuracy": shares, "seconds": seconds}
