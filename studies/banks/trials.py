"""Few-shot trials: every arm of a study on every problem, each measured once.

An arm is a bank to learn with: one vector, all of them, all in fewer bits, some that were chosen for the
problem. Knows nothing of why an arm was made.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.errors import EvalError
from studies.grid import Ledger, key_of
from studies.problems.few_shot import Problem, StudySettings, accuracy, draw_problem

__all__ = ["ALL", "BankVariant", "Mean", "Trial", "run_trials", "seed_mean"]

ALL = "all"
"""The arm that learns with every vector of the bank."""


@dataclass(frozen=True, eq=False)
class BankVariant:
    """A name, how many vectors are mixed, what identifies them, and the bank of them for a problem."""

    name: str
    vectors: int
    identity: tuple[str, ...]
    bank: Callable[[Problem], TaskVectorBank]


@dataclass(frozen=True)
class Trial:
    """One arm on one problem. Accuracies are shares of the same test pictures; losses are of the shots."""

    arm: str
    vectors: int
    target: str
    seed: int
    shots: int
    classes: int
    n_test: int
    zero_shot: float
    accuracy: float
    first_loss: float | None
    last_loss: float | None
    outcome: str
    seconds: float

    @property
    def gain(self) -> float:
        """Accuracy above zero-shot."""
        return self.accuracy - self.zero_shot

    def as_dict(self) -> dict[str, Any]:
        """The trial as plain JSON types."""
        return asdict(self)


def run_trials(
    engine: Atlas,
    arms: Sequence[BankVariant],
    folders: Sequence[ClassFolder],
    *,
    settings: StudySettings,
    ledger: Ledger,
    on_start: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Trial, bool]]:
    """Every trial, and whether it was carried out now; the first seed of all folders first.

    `on_start` is told what begins.
    """
    _require_own_names(folders)
    for seed in range(settings.seeds):
        for folder in folders:
            on_start(f"{folder.name}, reading")
            problem = draw_problem(folder, engine.backbone.preprocessing, settings=settings, seed=seed)
            sitting = _Sitting(engine, problem, settings)
            for arm in arms:
                on_start(f"{folder.name}, {arm.name}")
                yield sitting.measured(arm, ledger)


@dataclass(frozen=True)
class Mean:
    """Mean and standard deviation over seeds; no deviation where there is one seed."""

    mean: float
    spread: float | None

    def shown(self, *, sign: bool = False) -> str:
        """In percent: `41.2 ± 1.3`."""
        mean = f"{100 * self.mean:{'+' if sign else ''}.1f}"
        return mean if self.spread is None else f"{mean} ± {100 * self.spread:.1f}"


class Scored(Protocol):
    """What a mean is taken of: an accuracy, and the seed that drew its problem."""

    @property
    def seed(self) -> int:
        """Of the problem."""
        ...

    @property
    def accuracy(self) -> float:
        """A share of 1."""
        ...


ScoredRow = TypeVar("One", bound=Scored)


def seed_mean(trials: Sequence[ScoredRow], number: Callable[[ScoredRow], float] = lambda trial: trial.accuracy) -> Mean:
    """Over the seeds, of the mean over targets: the spread tells how much another draw would have changed."""
    if not trials:
        raise EvalError("there is no trial to take the mean of. Name an arm and a target that were measured.")
    seeds = sorted({trial.seed for trial in trials})
    means = [statistics.fmean(number(trial) for trial in trials if trial.seed == seed) for seed in seeds]
    return Mean(statistics.fmean(means), statistics.stdev(means) if len(means) > 1 else None)


class _Sitting:
    """One problem, with its zero-shot accuracy measured at most once."""

    def __init__(self, engine: Atlas, problem: Problem, settings: StudySettings) -> None:
        self.engine, self.problem, self.settings = engine, problem, settings

    @cached_property
    def zero_shot(self) -> float:
        return accuracy(self.engine, self.engine.backbone.visual, self.problem)

    def measured(self, arm: BankVariant, ledger: Ledger) -> tuple[Trial, bool]:
        problem, loop = self.problem, self.settings.loop().as_dict()
        key = key_of(self.engine.fingerprint, *arm.identity, problem.digest, problem.seed, loop)
        fields, fresh = ledger.once(key, lambda: self.trial(arm).as_dict())
        return Trial(**fields | {"arm": arm.name, "target": problem.target}), fresh

    def trial(self, arm: BankVariant) -> Trial:
        problem, zero_shot = self.problem, self.zero_shot
        start = time.perf_counter()
        bank = arm.bank(problem)
        run = self.engine.few_shot(
            problem.support, method="atlas", config=self.settings.loop(), bank=bank, seed=problem.seed
        )
        result = run.result()
        tower = self.engine.adapted(result.recipe, bank=bank)
        losses = [step.loss for step in result.history]
        return Trial(
            arm=arm.name,
            vectors=arm.vectors,
            target=problem.target,
            seed=problem.seed,
            shots=self.settings.shots,
            classes=len(problem.support.classes),
            n_test=len(problem.labels),
            zero_shot=zero_shot,
            accuracy=accuracy(self.engine, tower, problem),
            first_loss=losses[0] if losses else None,
            last_loss=losses[-1] if losses else None,
            outcome=result.outcome.value,
            seconds=time.perf_counter() - start,
        )


def _require_own_names(folders: Sequence[ClassFolder]) -> None:
    names = [folder.name for folder in folders]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise EvalError(f"two folders are called '{twice[0]}'. Rename one: a table must tell them apart.")
