"""The ways to name the pictures of a roll without labels: a new one is a row here. Knows nothing of grids.

    learner = Learner(engine, bank=bank)
    answer = METHODS["ufm"].solve(learner, roll, 0)
    answer.logits.argmax(dim=1), answer.seconds, answer.fell_back

A method gets pictures and class names; no signature here has a place for labels. `seconds` is the time from
the pictures to a model that is ready to use.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from atlas_engine.adapt import methods
from atlas_engine.adapt.unlabelled import TestTimeConfig, adapt_norms
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.engine import Atlas
from atlas_engine.heads.base import text_logits
from atlas_engine.predictions import join_predictions
from atlas_engine.result import Run
from studies.methods import ZERO_SHOT, MethodAnswer
from studies.problems.few_shot import unit_features
from studies.problems.rolls import DrawnRoll

__all__ = ["AUTO", "UNLABELLED_STUDY_METHODS", "ZERO_SHOT", "UnlabelledSolver", "UnlabelledStudyMethod"]

AUTO, STREAM = methods.AUTO, "stream"


@dataclass(frozen=True, eq=False)
class UnlabelledSolver:
    """An engine, the donors that may be mixed, and the budget. Without a config it is the product's own."""

    engine: Atlas
    bank: TaskVectorBank | None = None
    config: TestTimeConfig | None = None

    @property
    def budget(self) -> TestTimeConfig:
        """What is learned with."""
        return self.config or TestTimeConfig()


Solve = Callable[[UnlabelledSolver, DrawnRoll, int], MethodAnswer]  # the number is the seed


@dataclass(frozen=True)
class UnlabelledStudyMethod:
    """One way to name the pictures of a roll, and what its answers depend on besides model and pictures."""

    name: str
    solve: Solve
    facts: Callable[[UnlabelledSolver], dict[str, Any]]
    mixes: bool = True  # task vectors; a baseline is shown the same scene, bank and all, but mixes none


def _mixed(name: str) -> UnlabelledStudyMethod:
    """What the product does when it is asked for this objective."""

    def solve(learner: UnlabelledSolver, roll: DrawnRoll, seed: int) -> MethodAnswer:
        engine, bank = learner.engine, learner.bank
        start = time.perf_counter()
        run = engine.test_time(
            roll.pictures, roll.classes, objective=name, config=learner.config, bank=bank, seed=seed
        )
        result = run.result()
        seconds = time.perf_counter() - start
        logits = engine.logits(result.recipe, roll.squares, bank=bank)
        return MethodAnswer(logits.cpu(), seconds, result.fell_back, kept=result.recipe.method)

    return UnlabelledStudyMethod(name, solve, _mixture)


def _norms(name: str) -> UnlabelledStudyMethod:
    """The same objective over the tower's norm layers: a baseline, which cannot be a recipe."""

    def solve(learner: UnlabelledSolver, roll: DrawnRoll, seed: int) -> MethodAnswer:
        start = time.perf_counter()
        scene = learner.engine.unlabelled(roll.pictures, roll.classes, bank=learner.bank)
        run = Run(lambda stop: adapt_norms(scene, method=name, config=learner.budget, seed=seed, stop=stop))
        logits = run.result().logits
        return MethodAnswer(logits, time.perf_counter() - start)

    return UnlabelledStudyMethod(name, solve, _config)


def _streamed(learner: UnlabelledSolver, roll: DrawnRoll, seed: int) -> MethodAnswer:
    """`auto`, as pictures arrive: each is answered at once, by those that came before it and itself."""
    start = time.perf_counter()
    stream = learner.engine.stream(roll.classes, learning=learner.config, bank=learner.bank, seed=seed)
    told = join_predictions([stream.answer(picture) for picture in roll.pictures])
    return MethodAnswer(told.probs.log(), time.perf_counter() - start, stream.result().fell_back)


def _by_names(learner: UnlabelledSolver, roll: DrawnRoll, _: int) -> MethodAnswer:
    """Zero-shot: nothing is learned, so it takes no time."""
    engine = learner.engine
    features = unit_features(engine, engine.backbone.visual, roll.squares)
    text = engine.head(roll.classes).clone()
    return MethodAnswer(text_logits(features, text, logit_scale=engine.backbone.logit_scale).cpu(), 0.0)


def _mixture(learner: UnlabelledSolver) -> dict[str, Any]:
    bank = learner.engine.bank if learner.bank is None else learner.bank
    return {"bank": bank.fingerprint, "storage": bank.storage, **_config(learner)}


def _config(learner: UnlabelledSolver) -> dict[str, Any]:
    return {"config": learner.budget.as_dict()}


_ROWS = (
    UnlabelledStudyMethod(ZERO_SHOT, _by_names, lambda _: {}, mixes=False),
    *(_norms(name) for name in methods.NORM_BASELINES),
    *(_mixed(name) for name in methods.UNLABELLED_METHODS if name != ZERO_SHOT),
    _mixed(AUTO),
    UnlabelledStudyMethod(STREAM, _streamed, _mixture),
)

UNLABELLED_STUDY_METHODS = MappingProxyType({row.name: row for row in _ROWS})
