"""The ways to solve a few-shot problem: a new one is a row here. Knows nothing of grids or tables.

    solver = Solver(engine, bank=bank, config=FewShotConfig(steps=40, batch=32))
    answer = find_method("tip").solve(solver, problem)
    answer.logits.argmax(dim=1), answer.seconds, answer.fell_back
    find_method("tip").learn(solver, problem).logits(squares)       # the same model, asked about others

All see the same shots, as the same squares. Those that train an image tower take them in turn, in random
views of one kind (`Augment(jitter=0)`, as the product), and pass the same number of them through the tower,
steps × batch; `auto` passes more, for it learns once more without each part that it holds out. `seconds` is
the time from the shots to a model that is ready to use; naming the test pictures is not counted. Features
that several heads need are computed once, and each is charged.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from atlas_engine.adapt import few_shot
from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.adapt.verdict import ZERO_SHOT
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.learners import apply_difference
from atlas_engine.bank.train import FineTuneSettings, LabelledPixels, TrainingTask, fine_tune
from atlas_engine.data.augment import Augment
from atlas_engine.engine import Atlas
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.base import LabelledFeatures, text_logits
from atlas_engine.heads.registry import HEADS, FeatureLevel
from atlas_engine.result import AdaptResult, Estimate
from atlas_engine.runtime import drain
from studies.problems.few_shot import Problem, share_correct, shot_pixels, unit_features

__all__ = [
    "STUDY_METHODS",
    "ZERO_SHOT",
    "LearnedModel",
    "MethodAnswer",
    "Solver",
    "StudyMethod",
    "find_study_method",
]

KEPT_FEATURES = 12  # sets of squares whose features stay: the shots, and pictures to measure on of each kind
RANK = 16  # of the low-rank differences


@dataclass(frozen=True, eq=False)
class MethodAnswer:
    """Logits for the test pictures, what they cost, and what the method itself expected of them."""

    logits: Tensor  # (N C), on the CPU
    seconds: float
    fell_back: bool = False
    estimate: Estimate | None = None
    kept: str = ""  # the method that a choice among several came to

    def accuracy(self, labels: Tensor) -> float:
        """The share of pictures that are told right."""
        return share_correct(self.logits, labels)


@dataclass(frozen=True, eq=False)
class LearnedModel:
    """A model that is ready to use: logits (N C) on the CPU for squares (N 3 S S), and what it cost."""

    logits: Callable[[Tensor], Tensor]
    seconds: float
    fell_back: bool = False
    estimate: Estimate | None = None

    def about(self, squares: Tensor) -> MethodAnswer:
        """What it says of these squares."""
        return MethodAnswer(self.logits(squares), self.seconds, self.fell_back, self.estimate)


@dataclass(frozen=True, eq=False)
class TimedFeatures:
    """Features, and how long they took when they were computed."""

    features: Tensor  # (N D), rows of length 1
    seconds: float


class Solver:
    """An engine, the donors that may be mixed, and the budget. Without a config it is the product's own."""

    def __init__(
        self, engine: Atlas, *, bank: TaskVectorBank | None = None, config: FewShotConfig | None = None
    ) -> None:
        self.engine, self.bank, self.config = engine, bank, config
        self.budget = config or FewShotConfig()
        self.zero_shot = functools.lru_cache(maxsize=KEPT_FEATURES)(self._zero_shot)
        self.shots = functools.lru_cache(maxsize=1)(functools.partial(shot_pixels, engine))

    def text(self, problem: Problem) -> Tensor:
        """The embeddings of the class names, (C D)."""
        return self.engine.head(problem.support.classes).clone()

    def _zero_shot(self, squares: Tensor) -> TimedFeatures:
        """Features of squares (N 3 S S) under the base model."""
        start = time.perf_counter()
        features = unit_features(self.engine, self.engine.backbone.visual, squares)
        return TimedFeatures(features, time.perf_counter() - start)


Learn = Callable[[Solver, Problem], LearnedModel]
Facts = Callable[[Solver], dict[str, Any]]


@dataclass(frozen=True)
class StudyMethod:
    """One way to solve a problem, and what its answers depend on besides the model and the problem."""

    name: str
    learn: Learn
    facts: Facts
    mixes: bool = False  # task vectors, so that it needs a bank

    def solve(self, solver: Solver, problem: Problem) -> MethodAnswer:
        """Learn from the shots, and answer for the problem's test pictures."""
        return self.learn(solver, problem).about(problem.squares)


def find_study_method(name: str) -> StudyMethod:
    """The row of that name, or an error that offers the nearest."""
    if name not in STUDY_METHODS:
        raise ConfigError(unknown_name("method", name, STUDY_METHODS))
    return STUDY_METHODS[name]


# ---- without training a tower


def _by_names(solver: Solver, problem: Problem) -> LearnedModel:
    text, scale = solver.text(problem), solver.engine.backbone.logit_scale

    def logits(squares: Tensor) -> Tensor:
        return text_logits(solver.zero_shot(squares).features, text, logit_scale=scale).cpu()

    return LearnedModel(logits, 0.0)


def _head(name: str) -> StudyMethod:
    """A head alone, on zero-shot features."""
    row = HEADS[name]

    def learn(solver: Solver, problem: Problem) -> LearnedModel:
        text, shots = solver.text(problem), solver.zero_shot(solver.shots(problem))
        start = time.perf_counter()
        labels = torch.tensor(problem.support.labels)
        scale = solver.engine.backbone.logit_scale
        head = row.alone(LabelledFeatures(shots.features, labels, text, logit_scale=scale))
        seconds = shots.seconds + time.perf_counter() - start

        @torch.inference_mode()
        def logits(squares: Tensor) -> Tensor:
            return head.logits(solver.zero_shot(squares).features).cpu()

        return LearnedModel(logits, seconds)

    return StudyMethod(name, learn, _nothing)


# ---- training the tower itself


def _tower(name: str, kind: str) -> StudyMethod:
    """The image tower fine-tuned under the frozen class names, as task vectors are made."""

    def learn(solver: Solver, problem: Problem) -> LearnedModel:
        lesson = _lesson(solver, problem)
        settings = _tune_settings(solver, kind, seed=problem.seed, most=len(lesson.train))
        visual = solver.engine.backbone.visual
        start = time.perf_counter()
        model = apply_difference(visual, kind, drain(fine_tune(visual, lesson, settings=settings)).difference)
        seconds = time.perf_counter() - start

        def logits(squares: Tensor) -> Tensor:
            features = lesson.units(model.features, squares)
            return text_logits(features, lesson.head, logit_scale=lesson.logit_scale).cpu()

        return LearnedModel(logits, seconds)

    return StudyMethod(name, learn, lambda solver: _tune_settings(solver, kind).as_dict())


def _tune_settings(solver: Solver, kind: str, *, seed: int = 0, most: int | None = None) -> FineTuneSettings:
    """AdamW with a warm-up over a quarter of the steps, then a cosine; decay pulls back to the base model.

    The learning rates are those of the training of task vectors (`bank.train`), so no target chose them.
    """
    batch, steps = solver.budget.batch, max(1, solver.budget.steps)
    return FineTuneSettings(
        kind=kind, steps=steps, batch=min(batch, most or batch), warm_up=steps // 4, rank=RANK, seed=seed
    )


def _lesson(solver: Solver, problem: Problem) -> TrainingTask:
    """The shots as `fine_tune` learns from them: no validation pictures, for nobody has any."""
    engine, augment = solver.engine, Augment(jitter=0.0)

    def view(pixels: Tensor, generator: torch.Generator | None) -> Tensor:
        return engine.backbone.as_input(
            pixels.float() / 255 if generator is None else augment(pixels, generator)
        )

    return TrainingTask(
        head=solver.text(problem),
        logit_scale=engine.backbone.logit_scale,
        train=LabelledPixels(solver.shots(problem), torch.tensor(problem.support.labels)),
        val=None,
        view=view,
    )


# ---- mixing task vectors


def _mixed(name: str) -> StudyMethod:
    """What the product does when it is asked for this method."""

    def learn(solver: Solver, problem: Problem) -> LearnedModel:
        engine = solver.engine
        solver.text(problem)  # nobody is charged for reading the names
        start = time.perf_counter()
        run = engine.few_shot(
            problem.support, method=name, config=solver.config, bank=solver.bank, seed=problem.seed
        )
        result = run.result()
        seconds = time.perf_counter() - start

        def logits(squares: Tensor) -> Tensor:
            return engine.logits(result.recipe, squares, bank=solver.bank).cpu()

        return LearnedModel(logits, seconds, result.fell_back, _expected(result))

    return StudyMethod(name, learn, _mixture, mixes=True)


def _mixture(solver: Solver) -> dict[str, Any]:
    bank = solver.engine.bank if solver.bank is None else solver.bank
    return {"bank": bank.fingerprint, "storage": bank.storage, "config": solver.budget.as_dict()}


def _expected(result: AdaptResult) -> Estimate | None:
    """The estimate of the method that was kept."""
    return next((one for one in result.estimates if one.method == result.verdict.kept), None)


def _nothing(_: Solver) -> dict[str, Any]:
    return {}


_ROWS = (
    StudyMethod(ZERO_SHOT, _by_names, _nothing),
    *(
        _head(name)
        for name, row in HEADS.items()
        if name != "none" and row.feature_level is FeatureLevel.projected
    ),
    _tower("finetune", "standard"),
    _tower("lora", "lora"),
    *(
        _mixed(name)
        for name, row in few_shot.FEW_SHOT_METHODS.items()
        if row.mixes or HEADS[row.head].feature_level is not FeatureLevel.projected
    ),
    _mixed(few_shot.AUTO),
)

STUDY_METHODS = MappingProxyType({row.name: row for row in _ROWS})
