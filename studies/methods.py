"""The methods that studies compare: one table for few-shot learning, one for learning without labels.

    solver = Solver(engine, bank=bank, config=FewShotConfig(steps=40, batch=32))
    answer = find_study_method("tip").solve(solver, problem)
    answer.logits.argmax(dim=1), answer.seconds, answer.fell_back
    find_study_method("tip").learn(solver, problem).answer(pixels)          # the same model on other images

    solver = UnlabelledSolver(engine, bank=bank)
    answer = UNLABELLED_STUDY_METHODS["ufm"].solve(solver, roll, seed)

`seconds` is the time from the images to a model that is ready to use; predicting is not counted.

All few-shot methods see the same shots at the same size. Those that train an image tower take them in turn,
in random views of one kind (`Augment(jitter=0)`, as the product does), and pass the same number of them
through the tower, steps × batch; `auto` passes more, since it trains again for each fold that it holds out.
Features that several heads need are computed once, and each head is charged for them.

A method without labels gets images and class names; no signature here has a place for labels.
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

from atlas_engine.adapt import methods
from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.adapt.methods import AUTO, FEW_SHOT_METHODS, ZERO_SHOT
from atlas_engine.adapt.unlabelled import TestTimeConfig
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.train import FineTuneSettings, LabelledPixels, TrainingTask, fine_tune
from atlas_engine.bank.tunable import apply_difference
from atlas_engine.data.augment import Augment
from atlas_engine.engine import Atlas
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.base import LabelledFeatures, text_logits
from atlas_engine.heads.registry import HEADS, FeatureLevel
from atlas_engine.predictions import join_predictions
from atlas_engine.result import AdaptResult, Estimate
from atlas_engine.runtime import drain
from studies.problems.few_shot import Problem, share_correct, shot_pixels, unit_features
from studies.problems.rolls import DrawnRoll

__all__ = [
    "AUTO",
    "STUDY_METHODS",
    "UNLABELLED_STUDY_METHODS",
    "ZERO_SHOT",
    "LearnedModel",
    "MethodAnswer",
    "Solver",
    "StudyMethod",
    "UnlabelledSolver",
    "UnlabelledStudyMethod",
    "find_study_method",
]

STREAM = "stream"
KEPT_FEATURES = 12  # tensors of pixels whose features stay: the shots, and the test images of each domain
RANK = 16  # of the low-rank differences


@dataclass(frozen=True, eq=False)
class MethodAnswer:
    """Logits of the images, what the model cost, and the accuracy that the method itself expected."""

    logits: Tensor  # (N C), on the CPU
    seconds: float
    fell_back: bool = False
    estimate: Estimate | None = None
    kept: str = ""  # the method that a choice among several came to

    def accuracy(self, labels: Tensor) -> float:
        """The share of images whose largest logit is their label (N)."""
        return share_correct(self.logits, labels)


# ---- few-shot


@dataclass(frozen=True, eq=False)
class LearnedModel:
    """A model that is ready to use: logits (N C) on the CPU for pixels (N 3 S S), and what it cost."""

    logits: Callable[[Tensor], Tensor]
    seconds: float
    fell_back: bool = False
    estimate: Estimate | None = None

    def answer(self, pixels: Tensor) -> MethodAnswer:
        """Its logits for these pixels (N 3 S S)."""
        return MethodAnswer(self.logits(pixels), self.seconds, self.fell_back, self.estimate)


@dataclass(frozen=True, eq=False)
class TimedFeatures:
    """Features, and how long they took when they were computed."""

    features: Tensor  # (N D), rows of length 1
    seconds: float


class Solver:
    """An engine, the task vectors that may be mixed, and the budget; without a config, the product's own."""

    def __init__(
        self, engine: Atlas, *, bank: TaskVectorBank | None = None, config: FewShotConfig | None = None
    ) -> None:
        self.engine, self.bank, self.config = engine, bank, config
        self.budget = config or FewShotConfig()
        self.zero_shot = functools.lru_cache(maxsize=KEPT_FEATURES)(self._zero_shot)
        self.shots = functools.lru_cache(maxsize=1)(functools.partial(shot_pixels, engine))

    def text(self, problem: Problem) -> Tensor:
        """The embeddings of the class names, or prototypes of the shots where none reads them, (C D)."""
        return self.engine.starting_head(problem.support)

    def _zero_shot(self, pixels: Tensor) -> TimedFeatures:
        """Features of pixels (N 3 S S) under the base model."""
        start = time.perf_counter()
        features = unit_features(self.engine, self.engine.backbone.visual, pixels)
        return TimedFeatures(features, time.perf_counter() - start)


@dataclass(frozen=True)
class StudyMethod:
    """One few-shot method, and what its answers depend on besides the model and the problem."""

    name: str
    learn: Callable[[Solver, Problem], LearnedModel]
    facts: Callable[[Solver], dict[str, Any]]
    mixes: bool = False  # task vectors, so that it needs a bank

    def solve(self, solver: Solver, problem: Problem) -> MethodAnswer:
        """Learn from the shots, and answer for the problem's test images."""
        return self.learn(solver, problem).answer(problem.pixels)


def find_study_method(name: str) -> StudyMethod:
    """The few-shot method of that name, or an error that offers the nearest."""
    if name not in STUDY_METHODS:
        raise ConfigError(unknown_name("method", name, STUDY_METHODS))
    return STUDY_METHODS[name]


def _learn_nothing(solver: Solver, problem: Problem) -> LearnedModel:
    """Zero-shot."""
    text, scale = solver.text(problem), solver.engine.backbone.logit_scale

    def logits(pixels: Tensor) -> Tensor:
        return text_logits(solver.zero_shot(pixels).features, text, logit_scale=scale).cpu()

    return LearnedModel(logits, 0.0)


def _head_alone(name: str) -> StudyMethod:
    """A head on zero-shot features; the tower stays as it is."""
    row = HEADS[name]

    def learn(solver: Solver, problem: Problem) -> LearnedModel:
        text, shots = solver.text(problem), solver.zero_shot(solver.shots(problem))
        start = time.perf_counter()
        labels = torch.tensor(problem.support.labels)
        scale = solver.engine.backbone.logit_scale
        head = row.fit_alone(LabelledFeatures(shots.features, labels, text, logit_scale=scale))
        seconds = shots.seconds + time.perf_counter() - start

        @torch.inference_mode()
        def logits(pixels: Tensor) -> Tensor:
            return head.logits(solver.zero_shot(pixels).features).cpu()

        return LearnedModel(logits, seconds)

    return StudyMethod(name, learn, _no_facts)


def _fine_tuned(name: str, kind: str) -> StudyMethod:
    """The image tower fine-tuned under the frozen text head, as task vectors are made."""

    def learn(solver: Solver, problem: Problem) -> LearnedModel:
        task = _training_task(solver, problem)
        settings = _fine_tune_settings(solver, kind, seed=problem.seed, most=len(task.train))
        visual = solver.engine.backbone.visual
        start = time.perf_counter()
        model = apply_difference(visual, kind, drain(fine_tune(visual, task, settings=settings)).difference)
        seconds = time.perf_counter() - start

        def logits(pixels: Tensor) -> Tensor:
            features = task.unit_features(model.features, pixels)
            return text_logits(features, task.head, logit_scale=task.logit_scale).cpu()

        return LearnedModel(logits, seconds)

    return StudyMethod(name, learn, lambda solver: _fine_tune_settings(solver, kind).as_dict())


def _fine_tune_settings(
    solver: Solver, kind: str, *, seed: int = 0, most: int | None = None
) -> FineTuneSettings:
    """AdamW with a warm-up over a quarter of the steps, then a cosine; decay pulls back to the base model.

    The learning rates are those of the training of task vectors (`bank.train`), so no target chose them.
    """
    batch, steps = solver.budget.batch, max(1, solver.budget.steps)
    return FineTuneSettings(
        kind=kind, steps=steps, batch=min(batch, most or batch), warm_up=steps // 4, rank=RANK, seed=seed
    )


def _training_task(solver: Solver, problem: Problem) -> TrainingTask:
    """The shots as `fine_tune` takes them; without validation images, which a few-shot user has not."""
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


def _product(name: str) -> StudyMethod:
    """What the product does when it is asked for this method."""

    def learn(solver: Solver, problem: Problem) -> LearnedModel:
        engine = solver.engine
        solver.text(problem)  # embed the names before the clock starts
        start = time.perf_counter()
        run = engine.few_shot(
            problem.support, method=name, config=solver.config, bank=solver.bank, seed=problem.seed
        )
        result = run.result()
        seconds = time.perf_counter() - start

        def logits(pixels: Tensor) -> Tensor:
            return engine.logits(result.recipe, pixels, bank=solver.bank).cpu()

        return LearnedModel(logits, seconds, result.fell_back, _kept_estimate(result))

    def facts(solver: Solver) -> dict[str, Any]:
        return {**_bank_facts(solver.engine, solver.bank), "config": _config_key(solver.budget)}

    return StudyMethod(name, learn, facts, mixes=True)


def _kept_estimate(result: AdaptResult) -> Estimate | None:
    """The estimate of the method that was kept."""
    return next((one for one in result.estimates if one.method == result.verdict.kept), None)


def _bank_facts(engine: Atlas, bank: TaskVectorBank | None) -> dict[str, Any]:
    used = engine.bank if bank is None else bank
    return {"bank": used.fingerprint, "storage": used.storage}


def _no_facts(_: object) -> dict[str, Any]:
    return {}


def _config_key(config: FewShotConfig) -> dict[str, Any]:
    """The config as the keys of measured rows have it: without epochs where none are asked for."""
    return {name: value for name, value in config.as_dict().items() if (name, value) != ("epochs", 0)}


_FEW_SHOT = (
    StudyMethod(ZERO_SHOT, _learn_nothing, _no_facts),
    *(
        _head_alone(name)
        for name, row in HEADS.items()
        if name != "none" and row.feature_level is FeatureLevel.projected
    ),
    _fine_tuned("finetune", "standard"),
    _fine_tuned("lora", "lora"),
    *(
        _product(name)
        for name, row in FEW_SHOT_METHODS.items()
        if name != AUTO
        and (row.uses_task_vectors or HEADS[row.head].feature_level is not FeatureLevel.projected)
    ),
    _product(AUTO),
)

STUDY_METHODS = MappingProxyType({row.name: row for row in _FEW_SHOT})
"""Few-shot methods by name; a new one is a row above."""


# ---- without labels


@dataclass(frozen=True, eq=False)
class UnlabelledSolver:
    """An engine, the task vectors that may be mixed, and the budget; without a config, the product's own."""

    engine: Atlas
    bank: TaskVectorBank | None = None
    config: TestTimeConfig | None = None

    @property
    def budget(self) -> TestTimeConfig:
        """The config, or the product's own."""
        return self.config or TestTimeConfig()


Solve = Callable[[UnlabelledSolver, DrawnRoll, int], MethodAnswer]  # the number is the seed


@dataclass(frozen=True)
class UnlabelledStudyMethod:
    """One method without labels, and what its answers depend on besides the model and the images."""

    name: str
    solve: Solve
    facts: Callable[[UnlabelledSolver], dict[str, Any]]
    mixes: bool = True  # so that it needs a bank; a norm baseline mixes none, but its context has one


def _objective(name: str) -> UnlabelledStudyMethod:
    """What the product does when it is asked for this objective."""

    def solve(solver: UnlabelledSolver, roll: DrawnRoll, seed: int) -> MethodAnswer:
        engine, bank = solver.engine, solver.bank
        start = time.perf_counter()
        run = engine.test_time(
            roll.images, roll.classes, objective=name, config=solver.config, bank=bank, seed=seed
        )
        result = run.result()
        seconds = time.perf_counter() - start
        logits = engine.logits(result.recipe, roll.pixels, bank=bank)
        return MethodAnswer(logits.cpu(), seconds, result.fell_back, kept=result.recipe.method)

    return UnlabelledStudyMethod(name, solve, _mixing_facts)


def _norm_baseline(name: str) -> UnlabelledStudyMethod:
    """The same objective over the tower's norm layers: a baseline, which cannot become a recipe."""

    def solve(solver: UnlabelledSolver, roll: DrawnRoll, seed: int) -> MethodAnswer:
        start = time.perf_counter()
        run = solver.engine.test_time_norms(
            roll.images, roll.classes, method=name, config=solver.budget, bank=solver.bank, seed=seed
        )
        logits = run.result().logits
        return MethodAnswer(logits, time.perf_counter() - start)

    return UnlabelledStudyMethod(name, solve, _config_facts)


def _solve_stream(solver: UnlabelledSolver, roll: DrawnRoll, seed: int) -> MethodAnswer:
    """`auto` on a stream: each image is answered at once, by what was learned from it and those before."""
    start = time.perf_counter()
    stream = solver.engine.stream(roll.classes, learning=solver.config, bank=solver.bank, seed=seed)
    predictions = join_predictions([stream.answer(image) for image in roll.images])
    return MethodAnswer(predictions.probs.log(), time.perf_counter() - start, stream.result().fell_back)


def _solve_zero_shot(solver: UnlabelledSolver, roll: DrawnRoll, _: int) -> MethodAnswer:
    """Zero-shot: nothing is learned, so it takes no time."""
    engine = solver.engine
    features = unit_features(engine, engine.backbone.visual, roll.pixels)
    text = engine.head(roll.classes).clone()
    return MethodAnswer(text_logits(features, text, logit_scale=engine.backbone.logit_scale).cpu(), 0.0)


def _mixing_facts(solver: UnlabelledSolver) -> dict[str, Any]:
    return {**_bank_facts(solver.engine, solver.bank), **_config_facts(solver)}


def _config_facts(solver: UnlabelledSolver) -> dict[str, Any]:
    return {"config": solver.budget.as_dict()}


_UNLABELLED = (
    UnlabelledStudyMethod(ZERO_SHOT, _solve_zero_shot, _no_facts, mixes=False),
    *(_norm_baseline(name) for name in methods.NORM_BASELINES),
    *(_objective(name) for name in methods.UNLABELLED_METHODS if name not in (ZERO_SHOT, AUTO)),
    _objective(AUTO),
    UnlabelledStudyMethod(STREAM, _solve_stream, _mixing_facts),
)

UNLABELLED_STUDY_METHODS = MappingProxyType({row.name: row for row in _UNLABELLED})
"""Methods without labels by name; a new one is a row above."""
