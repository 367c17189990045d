"""Few-shot trials of a bank's variants: coefficients learned from a few shots, and their accuracy.

    for trial, fresh in run_trials(engine, single_vector_variants(bank), folders, settings=…, ledger=…): ...

A variant is a bank to learn with: one vector of it, all of them, all in fewer bits, or some that were chosen
for the problem.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from atlas_engine.adapt.methods import FEW_SHOT_METHODS
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.errors import EvalError
from studies.grid import Cell, Ledger, OnStart, StudyRow, ignore_note, run_grid
from studies.methods import few_shot_facts
from studies.problems.few_shot import Problem, StudySettings, accuracy, draw_problem

__all__ = ["ALL", "BankVariant", "Trial", "run_trials", "whole_bank_variant"]

ALL = "all"
"""The variant that learns with every vector of the bank."""


@dataclass(frozen=True, eq=False)
class BankVariant:
    """A name, how many vectors are mixed, what identifies them, and the bank of them for a problem."""

    name: str
    vectors: int
    identity: tuple[str, ...]
    bank: Callable[[Problem], TaskVectorBank]


def whole_bank_variant(bank: TaskVectorBank, *, name: str = ALL) -> BankVariant:
    """Every vector of the bank."""
    return BankVariant(name, len(bank), (bank.fingerprint, bank.storage), lambda _: bank)


@dataclass(frozen=True)
class Trial(StudyRow):
    """One variant on one problem. Both accuracies are on the same test images; losses are of the shots."""

    arm: str  # the variant's name
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


def run_trials(
    engine: Atlas,
    variants: Sequence[BankVariant],
    folders: Sequence[ClassFolder],
    *,
    settings: StudySettings,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[Trial, bool]]:
    """Every trial, and whether it was carried out now."""
    shape = engine.backbone.preprocessing

    def cells_of(_: str, folder: ClassFolder, seed: int) -> Iterator[Cell[Trial]]:
        problem = _TrialProblem(engine, draw_problem(folder, shape, settings=settings, seed=seed), settings)
        for variant in variants:
            yield problem.cell(variant)

    return run_grid(_by_name(folders), cells_of, seeds=settings.seeds, ledger=ledger, on_start=on_start)


class _TrialProblem:
    """A problem whose zero-shot accuracy is measured at most once, and only if a trial is carried out."""

    def __init__(self, engine: Atlas, problem: Problem, settings: StudySettings) -> None:
        self.engine, self.problem, self.settings = engine, problem, settings

    @cached_property
    def zero_shot(self) -> float:
        return accuracy(self.engine, self.engine.backbone.visual, self.problem)

    def cell(self, variant: BankVariant) -> Cell[Trial]:
        problem, learning = self.problem, few_shot_facts(FEW_SHOT_METHODS["atlas"], self.settings.loop())
        return Cell(
            f"{problem.target}, {variant.name}",
            (self.engine.fingerprint, *variant.identity, problem.digest, problem.seed, learning),
            lambda: self.carry_out(variant).as_dict(),
            Trial,
            {"arm": variant.name, "target": problem.target},
        )

    def carry_out(self, variant: BankVariant) -> Trial:
        problem, zero_shot = self.problem, self.zero_shot
        start = time.perf_counter()
        bank = variant.bank(problem)
        run = self.engine.few_shot(
            problem.support, method="atlas", config=self.settings.loop(), bank=bank, seed=problem.seed
        )
        result = run.result()
        tower = self.engine.tower(result.recipe, bank=bank)
        losses = [step.loss for step in result.history]
        return Trial(
            arm=variant.name,
            vectors=variant.vectors,
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


def _by_name(folders: Sequence[ClassFolder]) -> dict[str, ClassFolder]:
    """The folders by name; two of one name are refused."""
    named: dict[str, ClassFolder] = {}
    for folder in folders:
        if folder.name in named:
            raise EvalError(
                f"two folders are called '{folder.name}'. Rename one: a table must tell them apart."
            )
        named[folder.name] = folder
    return named
