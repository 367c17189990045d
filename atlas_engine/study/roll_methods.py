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

from atlas_engine.adapt import without_labels
from atlas_engine.adapt.run import Run
from atlas_engine.adapt.test_time import TestTimeConfig
from atlas_engine.atlas import Atlas
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.heads.base import text_logits
from atlas_engine.prediction import joined
from atlas_engine.study.methods import ZERO_SHOT, Answer
from atlas_engine.study.rolls import Roll
from atlas_engine.study.tasks import units
from atlas_engine.test_timing import adapt_norms

__all__ = ["AUTO", "METHODS", "ZERO_SHOT", "Learner", "Method"]

AUTO, STREAM = without_labels.AUTO, "stream"


@dataclass(frozen=True, eq=False)
class Learner:
    """An engine, the donors that may be mixed, and the budget. Without a config it is the product's own."""

    engine: Atlas
    bank: TaskVectorBank | None = None
    config: TestTimeConfig | None = None

    @property
    def budget(self) -> TestTimeConfig:
        """What is learned with."""
        return self.config or TestTimeConfig()


Solve = Callable[[Learner, Roll, int], Answer]  # the number is the seed


@dataclass(frozen=True)
class Method:
    """One way to name the pictures of a roll, and what its answers depend on besides model and pictures."""

    name: str
    solve: Solve
    facts: Callable[[Learner], dict[str, Any]]
    mixes: bool = True  # task vectors; a baseline is shown the same scene, bank and all, but mixes none


def _mixed(name: str) -> Method:
    """What the product does when it is asked for this objective."""

    def solve(learner: Learner, roll: Roll, seed: int) -> Answer:
        engine, bank = learner.engine, learner.bank
        start = time.perf_counter()
        run = engine.test_time(
            roll.pictures, roll.classes, objective=name, config=learner.config, bank=bank, seed=seed
        )
        result = run.result()
        seconds = time.perf_counter() - start
        logits = engine.logits(result.recipe, roll.squares, bank=bank)
        return Answer(logits.cpu(), seconds, result.fell_back, kept=result.recipe.method)

    return Method(name, solve, _mixture)


def _norms(name: str) -> Method:
    """The same objective over the tower's norm layers: a baseline, which cannot be a recipe."""

    def solve(learner: Learner, roll: Roll, seed: int) -> Answer:
        start = time.perf_counter()
        scene = learner.engine.unlabelled(roll.pictures, roll.classes, bank=learner.bank)
        run = Run(lambda stop: adapt_norms(scene, method=name, config=learner.budget, seed=seed, stop=stop))
        logits = run.result().logits
        return Answer(logits, time.perf_counter() - start)

    return Method(name, solve, _config)


def _streamed(learner: Learner, roll: Roll, seed: int) -> Answer:
    """`auto`, as pictures arrive: each is answered at once, by those that came before it and itself."""
    start = time.perf_counter()
    stream = learner.engine.stream(roll.classes, learning=learner.config, bank=learner.bank, seed=seed)
    told = joined([stream.answer(picture) for picture in roll.pictures])
    return Answer(told.probs.log(), time.perf_counter() - start, stream.result().fell_back)


def _by_names(learner: Learner, roll: Roll, _: int) -> Answer:
    """Zero-shot: nothing is learned, so it takes no time."""
    engine = learner.engine
    features = units(engine, engine.backbone.visual, roll.squares)
    text = engine.head(roll.classes).clone()
    return Answer(text_logits(features, text, logit_scale=engine.backbone.logit_scale).cpu(), 0.0)


def _mixture(learner: Learner) -> dict[str, Any]:
    bank = learner.engine.bank if learner.bank is None else learner.bank
    return {"bank": bank.fingerprint, "storage": bank.storage, **_config(learner)}


def _config(learner: Learner) -> dict[str, Any]:
    return {"config": learner.budget.as_dict()}


_ROWS = (
    Method(ZERO_SHOT, _by_names, lambda _: {}, mixes=False),
    *(_norms(name) for name in without_labels.NORMS),
    *(_mixed(name) for name in without_labels.METHODS if name != ZERO_SHOT),
    _mixed(AUTO),
    Method(STREAM, _streamed, _mixture),
)

METHODS = MappingProxyType({row.name: row for row in _ROWS})
