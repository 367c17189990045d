"""One model for several tasks: from pictures of each to a result. Knows nothing of files.

    search    one coefficient for all vectors together, 0 … 1: the best mean over tasks
    learn     from there, the mean of the tasks' cross-entropies over λ per block      (aTLAS, section 4)
    choose    whichever is best on what is held out, on the mean over tasks

A task's accuracy is measured against that of its own fine-tuned model, θ0 + τ, where the bank has its vector:
the normalised accuracy. Where nothing beats zero-shot, it stays and the verdict says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from atlas_engine.adapt.arithmetic.config import AddConfig
from atlas_engine.adapt.arithmetic.course import LOOKING, SEARCHING, ArithmeticRun
from atlas_engine.adapt.arithmetic.recipes import recipe_of, result_of
from atlas_engine.adapt.arithmetic.scene import ArithmeticContext, TaskScore, vector_of
from atlas_engine.adapt.guards import StopFlag
from atlas_engine.adapt.optimise import LoopResult
from atlas_engine.adapt.verdict import ZERO_SHOT
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.data.support import Support
from atlas_engine.errors import ConfigError, SupportError, unknown_name
from atlas_engine.objectives.multitask import TaskCrossEntropy, TaskEntropy
from atlas_engine.result import AdaptResult, Step, Verdict

__all__ = [
    "ADAMERGING",
    "ADDITIONS",
    "ATLAS",
    "AUTO",
    "OWN",
    "SCALAR",
    "UNIFORM",
    "add",
    "named_tasks",
    "task_vectors_for",
]

AUTO, UNIFORM, SCALAR, ADAMERGING, ATLAS = "auto", "uniform", "scalar", "adamerging", "atlas"
ADDITIONS = (AUTO, UNIFORM, SCALAR, ADAMERGING, ATLAS)
"""Whichever is best; 1/T each; one searched coefficient; learned without labels; learned with them."""

OWN = "own vector"
"""A model for each task: the base and the task's own vector, at 1."""

UNLABELLED_START = 0.3  # AdaMerging's own: without labels there is nothing to search by
PATIENCE = 3  # coefficients in a row without a new best end the search


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Coefficients, and what they get right of each task held out."""

    method: str
    table: Tensor  # (T M)
    marks: tuple[TaskScore, ...]

    @property
    def mean(self) -> float:
        return _mean(self.marks)


def named_tasks(tasks: Mapping[str, Support] | Sequence[Support]) -> dict[str, Support]:
    """Several tasks by name: their own, or a number each."""
    by_name = dict(tasks) if isinstance(tasks, Mapping) else {f"task {n}": t for n, t in enumerate(tasks, 1)}
    if len(by_name) < 2:
        raise SupportError(f"got {len(by_name)} task(s), but adding needs at least 2. For one, use few_shot.")
    return by_name


def task_vectors_for(bank: TaskVectorBank, tasks: Sequence[str]) -> TaskVectorBank:
    """The tasks' own vectors, found by name or data set; the whole bank where one has none."""
    own = [vector_of(bank, task) for task in tasks]
    known = [vector for vector in own if vector is not None]
    return bank.select(dict.fromkeys(known)) if len(known) == len(own) else bank


def add(
    scene: ArithmeticContext, *, method: str, config: AddConfig, seed: int, stop: StopFlag
) -> Generator[Step, None, AdaptResult]:
    """One λ for all tasks of the scene, over all vectors of its bank."""
    if method not in ADDITIONS:
        raise ConfigError(unknown_name("addition", method, ADDITIONS))
    course = ArithmeticRun(scene, config, seed=seed, stop=stop)
    yield course.story.mark("look", 0, 1, share=LOOKING)
    adding = _Adding(course, config)
    found: list[_Candidate] = [adding.at(ZERO_SHOT, 0.0)]
    ending = None
    if method == UNIFORM:
        found.append(adding.at(UNIFORM, 1 / len(scene.bank)))
    if method in (AUTO, SCALAR, ATLAS):
        found.append((yield from adding.search(found[0])))
    if method in (AUTO, ATLAS, ADAMERGING):
        labelled = method != ADAMERGING
        start = found[-1].table if labelled else adding.along(UNLABELLED_START)
        objective = TaskCrossEntropy(scene.sizes) if labelled else TaskEntropy(scene.sizes)
        lesson = yield from course.lesson(start=start)
        learned = yield from lesson.learn(objective, choose=_mean if labelled else None, labelled=labelled)
        name, marks = ATLAS if labelled else ADAMERGING, lesson.marks(learned.lam)
        found.append(_Candidate(name, lesson.table(learned.lam), marks))
        ending = learned.ending
    return adding.ended(found, asked=method, ending=ending)


def _mean(marks: Sequence[TaskScore]) -> float:
    return statistics.fmean(mark.share for mark in marks)


class _Adding:
    def __init__(self, course: ArithmeticRun, config: AddConfig) -> None:
        self.course, self.config = course, config
        self.vectors = course.scene.bank.tasks

    def along(self, value: float) -> Tensor:
        return self.course.whole.along(dict.fromkeys(self.vectors, value))

    def at(self, method: str, value: float) -> _Candidate:
        """One coefficient for every vector."""
        return self.candidate(method, self.along(value))

    def candidate(self, method: str, table: Tensor) -> _Candidate:
        return _Candidate(method, table, self.course.marks(table))

    def search(self, base: _Candidate) -> Generator[Step, None, _Candidate]:
        """The single coefficient with the best mean over tasks; that of zero-shot where none is better."""
        best, since, count = base, 0, round(self.config.most / self.config.grid)
        for index in range(1, count + 1):
            share = LOOKING + (SEARCHING - LOOKING) * index / count
            yield self.course.story.mark("search", index - 1, count, share=share)
            if self.course.stop.is_set() or since == PATIENCE:
                break
            one = self.at(SCALAR, index * self.config.grid)
            best, since = (one, 0) if one.mean > best.mean else (best, since + 1)
        return _Candidate(SCALAR, best.table, best.marks)

    def own(self) -> tuple[TaskScore | None, ...]:
        """Each task by its own fine-tuned model, where its vector is among those added."""
        scene, found = self.course.scene, []
        for number, task in enumerate(scene.tasks):
            vector = vector_of(scene.bank, task.name)
            table = None if vector is None else self.course.whole.along({vector: 1.0})
            found.append(None if table is None else self.course.mark(table, number))
        return tuple(found)

    def ended(self, found: Sequence[_Candidate], *, asked: str, ending: LoopResult | None) -> AdaptResult:
        course, base, own = self.course, found[0], self.own()
        kept = max(found, key=lambda one: one.mean) if asked == AUTO else found[-1]
        tasks = [task.name for task in course.scene.tasks]
        rows: list[tuple[str, Sequence[TaskScore | None]]] = [(one.method, one.marks) for one in found]
        estimates = [
            mark.estimate(f"{method}, {name}")
            for method, marks in [*rows, (OWN, own)]
            for name, mark in zip(tasks, marks, strict=True)
            if mark is not None
        ]
        facts = {f"{name} before": mark.share for name, mark in zip(tasks, base.marks, strict=True)}
        facts |= {f"{name} after": mark.share for name, mark in zip(tasks, kept.marks, strict=True)}
        recipe, verdict = recipe_of(course, kept.method, kept.table, facts=facts), _verdict(kept, base, own)
        return result_of(course, recipe, verdict=verdict, estimates=estimates, ending=ending)


def _verdict(kept: _Candidate, base: _Candidate, own: Sequence[TaskScore | None]) -> Verdict:
    helped = kept.mean > base.mean
    count, tasks = sum(mark.total for mark in base.marks), len(base.marks)
    if kept.method == ZERO_SHOT:
        sentence = f"Nothing beats zero-shot on the {count} images held out, so it was kept: {base.mean:.0%}."
        return Verdict(ZERO_SHOT, helped=False, sentence=sentence)
    known = [(mark, best) for mark, best in zip(kept.marks, own, strict=True) if best is not None]
    normal = [mark.share / best.share for mark, best in known if best.right]
    beside = f", {statistics.fmean(normal):.0%} of what a model for each reaches" if normal else ""
    return Verdict(
        kept.method,
        helped=helped,
        sentence=f"One model for {tasks} tasks names {kept.mean:.0%} of what was held out{beside}; zero-shot "
        f"{base.mean:.0%} (means over the tasks, {count} images).",
    )
