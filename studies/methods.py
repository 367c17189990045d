"""The methods that studies compare: one table for few-shot learning, one for learning without labels.

    solver = Solver(engine, bank=bank, config=FewShotConfig(steps=40, batch=32))
    answer = find_study_method("tip").solve(solver, problem)
    answer.logits.argmax(dim=1), answer.seconds, answer.fell_back
    find_study_method("tip").learn(solver, problem).answer(pixels)          # the same model on other images

    solver = UnlabelledSolver(engine, bank=bank)
    answer = UNLABELLED_STUDY_METHODS["ufm"].solve(solver, problem, seed)

`seconds` is the time from the images to a model that is ready to use; predicting is not counted.

All few-shot methods see the same shots at the same size. Those that train an image tower take them in turn,
in random views of one kind (`Augment(jitter=0)`, as the product does), and pass the same number of them
through the tower, steps × batch; `auto` passes more, since it trains again for each fold that it holds out,
and a row that ends in `-long` takes as many as all these trainings together.
Features that several heads need are computed once, and each head is charged for them.

A method without labels gets images and class names; no signature here has a place for labels.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from atlas_engine.adapt.methods import (
    AUTO,
    FEW_SHOT_METHODS,
    NORM_BASELINES,
    UNLABELLED_METHODS,
    ZERO_SHOT,
    Method,
)
from atlas_engine.adapt.settings import (
    FewShotConfig,
    TestTimeConfig,
    TestTimeRunSettings,
    effective_few_shot_config,
    effective_test_time_config,
)
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.train import FineTuneSettings, LabelledPixels, TrainingTask, fine_tune
from atlas_engine.bank.tunable import apply_difference
from atlas_engine.clip.templates import Templates, find_templates
from atlas_engine.data.augment import Augment
from atlas_engine.engine import Atlas
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.base import Head, LabelledFeatures, text_logits
from atlas_engine.heads.probe import Probe
from atlas_engine.heads.registry import HEADS, FeatureLevel
from atlas_engine.predictions import join_predictions
from atlas_engine.result import AdaptResult, Estimate
from atlas_engine.runtime import drain
from studies.problems.few_shot import Problem, share_correct, shot_pixels, unit_features
from studies.problems.unlabelled import UnlabelledProblem
from studies.same_features import KernelRidge, move_halfway, read_levels

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
    "few_shot_facts",
    "find_study_method",
]

STREAM = "stream"
KEPT_FEATURES = 12  # tensors of pixels whose features stay: the shots, and the test images of each domain
RANK = 16  # of the low-rank differences
HALFWAY_RATES = {"finetune-half+head": 3e-4, "lora-half+head": 2e-3, "finetune-half+head-long": 3e-4}
"""Peak learning rates where half of the way is kept: those of task vectors. `atlas eval rates` tries others
on data sets of the bank: fine-tuning does not mind, and LoRA may gain from 6e-3."""


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
        self,
        engine: Atlas,
        *,
        bank: TaskVectorBank | None = None,
        config: FewShotConfig | None = None,
        templates: Templates | None = None,
        tune_lr: float | None = None,
    ) -> None:
        """`templates` of the class names are those of `Atlas.head`; None for the model's own.

        `tune_lr` is the learning rate of fine-tuning and LoRA; None is each method's own.
        """
        self.engine, self.bank, self.config = engine, bank, config or FewShotConfig()
        self.templates, self.tune_lr = find_templates(templates) if templates else None, tune_lr
        self.budget = effective_few_shot_config(self.config, FEW_SHOT_METHODS[ZERO_SHOT], images=1)
        self.zero_shot = functools.lru_cache(maxsize=KEPT_FEATURES)(self._zero_shot)
        self.shots = functools.lru_cache(maxsize=1)(functools.partial(shot_pixels, engine))

    def with_bank(self, bank: TaskVectorBank) -> Solver:
        """The same with other task vectors."""
        return Solver(
            self.engine, bank=bank, config=self.config, templates=self.templates, tune_lr=self.tune_lr
        )

    def text(self, problem: Problem) -> Tensor:
        """The embeddings of the class names, or prototypes of the shots where none reads them, (C D)."""
        return self.engine.starting_head(problem.support, templates=self.templates)

    def facts(self, method: StudyMethod) -> dict[str, Any]:
        """What a method's answers depend on besides the model and the problem."""
        return {**method.facts(self), **_template_facts(self.templates)}

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


def _head_on_levels(
    name: str, fit: Callable[[LabelledFeatures], Head | KernelRidge], *, views: int = 1
) -> StudyMethod:
    """A head on the features that `text-probe` has; the tower stays as it is."""

    def learn(solver: Solver, problem: Problem) -> LearnedModel:
        engine, text, pixels = solver.engine, solver.text(problem), solver.shots(problem)
        start = time.perf_counter()
        shots, features_of = read_levels(
            engine, engine.backbone.visual, problem, text=text, pixels=pixels, views=views
        )
        head = fit(shots)
        seconds = time.perf_counter() - start
        return LearnedModel(lambda others: head.logits(features_of(others)).detach().cpu(), seconds)

    return StudyMethod(name, learn, _no_facts)


def _halfway_and_head(name: str, kind: str, *, all_passes: bool = False) -> StudyMethod:
    """The image tower fine-tuned under the text head, half of the way kept, then the head of `auto`.

    With `all_passes` it takes the steps of all trainings of `auto`, those of its folds included.
    """

    def settings_for(solver: Solver, *, trainings: int = 1, **more: int) -> FineTuneSettings:
        settings = _fine_tune_settings(solver, kind, **more)
        steps = trainings * settings.steps
        lr = HALFWAY_RATES[name] if solver.tune_lr is None else solver.tune_lr
        return replace(settings, steps=steps, warm_up=steps // 4, lr=lr)

    def learn(solver: Solver, problem: Problem) -> LearnedModel:
        engine, task = solver.engine, _training_task(solver, problem)
        settings = settings_for(
            solver,
            trainings=_trainings_of_auto(solver, problem) if all_passes else 1,
            seed=problem.seed,
            most=len(task.train),
        )
        visual = engine.backbone.visual
        start = time.perf_counter()
        tuned = drain(fine_tune(visual, task, settings=settings))
        shots, features_of = read_levels(
            engine,
            move_halfway(visual, tuned.difference),
            problem,
            text=task.head,
            pixels=task.train.pixels,
        )
        head = HEADS["text-probe"].fit_alone(shots)
        seconds = time.perf_counter() - start
        return LearnedModel(lambda others: head.logits(features_of(others)).detach().cpu(), seconds)

    def facts(solver: Solver) -> dict[str, Any]:
        return settings_for(solver).as_dict() | ({"folds": solver.budget.folds} if all_passes else {})

    return StudyMethod(name, learn, facts)


def _trainings_of_auto(solver: Solver, problem: Problem) -> int:
    """How often `auto` trains: on all shots, and once for each fold that it holds out.

    With four folds: 1 of one shot a class, 3 of two, 5 of four or more.
    """
    fewest = min(problem.support.counts)
    return 1 if fewest < 2 else 1 + min(solver.budget.folds, fewest)


def _fine_tune_settings(
    solver: Solver, kind: str, *, seed: int = 0, most: int | None = None
) -> FineTuneSettings:
    """AdamW with a warm-up over a quarter of the steps, then a cosine; decay pulls back to the base model.

    The learning rates are those of the training of task vectors (`bank.train`), or those that a search on
    data sets of the bank has chosen (`HALFWAY_RATES`), so no target chose them.
    """
    budget = effective_few_shot_config(solver.config, FEW_SHOT_METHODS[ZERO_SHOT], images=most or 1)
    batch, steps = budget.batch, max(1, budget.steps)
    return FineTuneSettings(
        kind=kind,
        steps=steps,
        batch=min(batch, most or batch),
        lr=solver.tune_lr,
        warm_up=steps // 4,
        rank=RANK,
        seed=seed,
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
            problem.support,
            method=name,
            config=solver.config,
            bank=solver.bank,
            validation=None if name == AUTO else problem.validation,  # `auto` holds out shots instead
            templates=solver.templates,
            seed=problem.seed,
        )
        result = run.result()
        seconds = time.perf_counter() - start

        def logits(pixels: Tensor) -> Tensor:
            return engine.logits(result.recipe, pixels, bank=solver.bank).cpu()

        return LearnedModel(logits, seconds, result.fell_back, _kept_estimate(result))

    def facts(solver: Solver) -> dict[str, Any]:
        return {
            **_bank_facts(solver.engine, solver.bank),
            **few_shot_facts(FEW_SHOT_METHODS[name], solver.config),
        }

    return StudyMethod(name, learn, facts, mixes=True)


def _kept_estimate(result: AdaptResult) -> Estimate | None:
    """The estimate of the method that was kept."""
    return next((one for one in result.estimates if one.method == result.verdict.kept), None)


def _bank_facts(engine: Atlas, bank: TaskVectorBank | None) -> dict[str, Any]:
    used = engine.bank if bank is None else bank
    return {"bank": used.fingerprint, "storage": used.storage}


def _template_facts(templates: tuple[str, ...] | None) -> dict[str, Any]:
    return {} if templates is None else {"templates": list(templates)}


def _no_facts(_: object) -> dict[str, Any]:
    return {}


def few_shot_facts(row: Method, config: FewShotConfig) -> dict[str, Any]:
    """What a method of the product learns with: the settings of its runs, and what its row says besides.

    `share` is as given, and epochs stand here where there are any: so the rows of a method without settings
    of its own keep their keys.
    """
    settings = effective_few_shot_config(config, row, images=1).as_dict() | {"share": config.share}
    if not settings["epochs"]:
        del settings["epochs"]
    return {"config": settings, **_row_facts(row)}


def _row_facts(row: Method) -> dict[str, Any]:
    """What a row says of learning besides its settings, where that is not what most rows say."""
    usual, told = Method(name="", help=""), ("name", "help", "title", "head", "objective", "settings")
    found = {one.name: getattr(row, one.name) for one in fields(Method) if one.name not in told}
    other = {name: value for name, value in found.items() if value != getattr(usual, name)}
    if "layout" in other:
        other["layout"] = asdict(row.layout)
    return {"row": other} if other else {}


_FEW_SHOT = (
    StudyMethod(ZERO_SHOT, _learn_nothing, _no_facts),
    *(
        _head_alone(name)
        for name, row in HEADS.items()
        if name != "none" and row.feature_level is FeatureLevel.projected
    ),
    _fine_tuned("finetune", "standard"),
    _fine_tuned("lora", "lora"),
    _head_on_levels("linear-probe-levels", Probe.fit),
    _head_on_levels("kernel-ridge", KernelRidge.fit, views=0),
    _halfway_and_head("finetune-half+head", "standard"),
    _halfway_and_head("lora-half+head", "lora"),
    _halfway_and_head("finetune-half+head-long", "standard", all_passes=True),
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
    templates: tuple[str, ...] | None = None  # of the class names; None for the model's own
    prototypes: str = ""  # a hash of the images that stand for class names; empty where names do

    def facts(self, method: UnlabelledStudyMethod) -> dict[str, Any]:
        """What a method's answers depend on besides the model and the images."""
        named = {"prototypes": self.prototypes} if self.prototypes else {}
        return {**method.facts(self), **_template_facts(self.templates), **named}

    @property
    def budget(self) -> TestTimeRunSettings:
        """The config, with the product's own values where it has none."""
        given = self.config or TestTimeConfig()
        return effective_test_time_config(given, UNLABELLED_METHODS[ZERO_SHOT], images=1)


Solve = Callable[[UnlabelledSolver, UnlabelledProblem, int], MethodAnswer]  # the number is the seed


@dataclass(frozen=True)
class UnlabelledStudyMethod:
    """One method without labels, and what its answers depend on besides the model and the images."""

    name: str
    solve: Solve
    facts: Callable[[UnlabelledSolver], dict[str, Any]]
    mixes: bool = True  # so that it needs a bank; a norm baseline mixes none, but its context has one


def _objective(name: str) -> UnlabelledStudyMethod:
    """What the product does when it is asked for this objective."""

    def solve(solver: UnlabelledSolver, problem: UnlabelledProblem, seed: int) -> MethodAnswer:
        engine, bank = solver.engine, solver.bank
        start = time.perf_counter()
        run = engine.test_time(
            problem.images,
            problem.classes,
            objective=name,
            config=solver.config,
            bank=bank,
            templates=solver.templates,
            seed=seed,
        )
        result = run.result()
        seconds = time.perf_counter() - start
        logits = engine.logits(result.recipe, problem.pixels, bank=bank)
        return MethodAnswer(logits.cpu(), seconds, result.fell_back, kept=result.recipe.method)

    return UnlabelledStudyMethod(name, solve, functools.partial(_mixing_facts, name))


def _norm_baseline(name: str) -> UnlabelledStudyMethod:
    """The same objective over the tower's norm layers: a baseline, which cannot become a recipe."""

    def solve(solver: UnlabelledSolver, problem: UnlabelledProblem, seed: int) -> MethodAnswer:
        start = time.perf_counter()
        run = solver.engine.test_time_norms(
            problem.images,
            problem.classes,
            method=name,
            config=solver.config,
            bank=solver.bank,
            templates=solver.templates,
            seed=seed,
        )
        logits = run.result().logits
        return MethodAnswer(logits, time.perf_counter() - start)

    return UnlabelledStudyMethod(name, solve, functools.partial(_config_facts, name.removeprefix("ln-")))


def _solve_stream(solver: UnlabelledSolver, problem: UnlabelledProblem, seed: int) -> MethodAnswer:
    """`auto` on a stream: each image is answered at once, by what was learned from it and those before."""
    start = time.perf_counter()
    stream = solver.engine.stream(
        problem.classes, learning=solver.config, bank=solver.bank, templates=solver.templates, seed=seed
    )
    predictions = join_predictions([stream.answer(image) for image in problem.images])
    return MethodAnswer(predictions.probs.log(), time.perf_counter() - start, stream.result().fell_back)


def _solve_zero_shot(solver: UnlabelledSolver, problem: UnlabelledProblem, _: int) -> MethodAnswer:
    """Zero-shot: nothing is learned, so it takes no time."""
    engine = solver.engine
    features = unit_features(engine, engine.backbone.visual, problem.pixels)
    text = engine.head(problem.classes, templates=solver.templates).clone()
    return MethodAnswer(text_logits(features, text, logit_scale=engine.backbone.logit_scale).cpu(), 0.0)


def _mixing_facts(name: str, solver: UnlabelledSolver) -> dict[str, Any]:
    return {**_bank_facts(solver.engine, solver.bank), **_config_facts(name, solver)}


def _config_facts(name: str, solver: UnlabelledSolver) -> dict[str, Any]:
    """What a method learns with: the settings of its runs, and what its row says besides."""
    row, given = UNLABELLED_METHODS[name], solver.config or TestTimeConfig()
    settings = effective_test_time_config(given, row, images=1).as_dict()
    if given.steps is not None:
        settings["steps"] = given.steps  # a run may take more, which its images decide
    return {"config": settings, **_row_facts(row)}


_UNLABELLED = (
    UnlabelledStudyMethod(ZERO_SHOT, _solve_zero_shot, _no_facts, mixes=False),
    *(_norm_baseline(name) for name in NORM_BASELINES),
    *(_objective(name) for name in UNLABELLED_METHODS if name not in (ZERO_SHOT, AUTO)),
    _objective(AUTO),
    UnlabelledStudyMethod(STREAM, _solve_stream, functools.partial(_mixing_facts, AUTO)),
)

UNLABELLED_STUDY_METHODS = MappingProxyType({row.name: row for row in _UNLABELLED})
"""Methods without labels by name; a new one is a row above."""
