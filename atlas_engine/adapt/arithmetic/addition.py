"""One model for several tasks: from images of each to a result.

    search    one coefficient in 0 … 1 for all vectors: the best mean accuracy over tasks
    learn     from there, λ per block, on the mean of the tasks' cross-entropies        (aTLAS, section 4)
    choose    the candidate with the best mean accuracy on held-out images

Where the bank has a task's own vector, its accuracy is also given as a share of that of its fine-tuned model,
θ0 + τ: the normalised accuracy. Where nothing beats zero-shot, zero-shot is kept and the verdict says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from atlas_engine.adapt.arithmetic.config import AddConfig
from atlas_engine.adapt.arithmetic.recipes import arithmetic_recipe
from atlas_engine.adapt.arithmetic.tasks import TaskScore, vector_of
from atlas_engine.adapt.arithmetic.training import ENCODED, SEARCHED, ArithmeticRun
from atlas_engine.adapt.context import AdaptContext
from atlas_engine.adapt.guards import StopFlag
from atlas_engine.adapt.methods import AUTO, ZERO_SHOT
from atlas_engine.adapt.optimise import LoopResult
from atlas_engine.adapt.results import build_result
from atlas_engine.adapt.trainable import LAM
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.data.support import Support
from atlas_engine.errors import ConfigError, SupportError, unknown_name
from atlas_engine.objectives.multitask import TaskCrossEntropy, TaskEntropy
from atlas_engine.result import AdaptResult, Step, Verdict

__all__ = [
    "ADAMERGING",
    "ADDITIONS",
    "ATLAS",
    "OWN",
    "SCALAR",
    "UNIFORM",
    "add",
    "find_named_tasks",
    "find_task_vectors",
]

UNIFORM, SCALAR, ADAMERGING, ATLAS = "uniform", "scalar", "adamerging", "atlas"
ADDITIONS = (AUTO, UNIFORM, SCALAR, ADAMERGING, ATLAS)
"""The best of scalar and atlas; 1/T for every vector; one searched coefficient; λ learned without labels; λ
learned with labels."""

OWN = "own vector"
"""For comparison, a model for each task: the base plus the task's own vector."""

UNLABELLED_START = 0.3  # AdaMerging's own start: without labels, no coefficient can be searched
PATIENCE = 3  # coefficients in a row without a new best, after which the search ends


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Coefficients, and the held-out score of each task."""

    method: str
    table: Tensor  # (T M)
    scores: tuple[TaskScore, ...]

    @property
    def mean(self) -> float:
        return _mean(self.scores)


def find_named_tasks(tasks: Mapping[str, Support] | Sequence[Support]) -> dict[str, Support]:
    """The tasks by name; those without names are called "task 1", "task 2", …"""
    by_name = dict(tasks) if isinstance(tasks, Mapping) else {f"task {n}": t for n, t in enumerate(tasks, 1)}
    if len(by_name) < 2:
        raise SupportError(f"got {len(by_name)} task(s), but adding needs at least 2. For one, use few_shot.")
    return by_name


def find_task_vectors(bank: TaskVectorBank, tasks: Sequence[str]) -> TaskVectorBank:
    """The tasks' own vectors, found by name or data set; the whole bank if a task has none in it."""
    own = [vector_of(bank, task) for task in tasks]
    known = [vector for vector in own if vector is not None]
    return bank.select(dict.fromkeys(known)) if len(known) == len(own) else bank


def add(
    context: AdaptContext, *, method: str, config: AddConfig, seed: int, stop: StopFlag
) -> Generator[Step, None, AdaptResult]:
    """Yield the steps of finding one λ for all tasks of the context, then return the result."""
    if method not in ADDITIONS:
        raise ConfigError(unknown_name("addition", method, ADDITIONS))
    run = ArithmeticRun(context, config, seed=seed, stop=stop)
    yield run.progress.phase("encode", 0, 1, share=ENCODED)
    addition = _Addition(run, config)
    candidates: list[_Candidate] = [addition.at(ZERO_SHOT, 0.0)]
    loop = None
    if method == UNIFORM:
        candidates.append(addition.at(UNIFORM, 1 / len(context.bank)))
    if method in (AUTO, SCALAR, ATLAS):
        candidates.append((yield from addition.search_scalar(candidates[0])))
    if method in (AUTO, ATLAS, ADAMERGING):
        labelled = method != ADAMERGING
        start = candidates[-1].table if labelled else addition.uniform(UNLABELLED_START)
        counts = context.class_counts
        objective = TaskCrossEntropy(counts) if labelled else TaskEntropy(counts)
        training = yield from run.prepare_training(start=start)
        loop = yield from training.learn(objective, choose=_mean if labelled else None, labelled=labelled)
        lam = loop.values[LAM][0]
        name = ATLAS if labelled else ADAMERGING
        candidates.append(_Candidate(name, training.table(lam), training.scores(lam)))
    return addition.finish(candidates, asked=method, loop=loop)


def _mean(scores: Sequence[TaskScore]) -> float:
    return statistics.fmean(score.share for score in scores)


class _Addition:
    """One run: candidates with one coefficient for all vectors, the search among them, and the result."""

    def __init__(self, run: ArithmeticRun, config: AddConfig) -> None:
        self.run, self.config = run, config

    def uniform(self, value: float) -> Tensor:
        """λ with one coefficient for every vector."""
        return self.run.tower.uniform(dict.fromkeys(self.run.context.bank.tasks, value))

    def at(self, method: str, value: float) -> _Candidate:
        table = self.uniform(value)
        return _Candidate(method, table, self.run.scores(table))

    def search_scalar(self, base: _Candidate) -> Generator[Step, None, _Candidate]:
        """The single coefficient with the best mean over tasks; 0 where none is better."""
        best, since, count = base, 0, round(self.config.most / self.config.grid)
        for index in range(1, count + 1):
            share = ENCODED + (SEARCHED - ENCODED) * index / count
            yield self.run.progress.phase("search", index - 1, count, share=share)
            if self.run.stop.is_set() or since == PATIENCE:
                break
            candidate = self.at(SCALAR, index * self.config.grid)
            best, since = (candidate, 0) if candidate.mean > best.mean else (best, since + 1)
        return _Candidate(SCALAR, best.table, best.scores)

    def own_scores(self) -> tuple[TaskScore | None, ...]:
        """The score of each task's own fine-tuned model; None where the bank lacks its vector."""
        context, found = self.run.context, []
        for number, task in enumerate(context.tasks):
            vector = vector_of(context.bank, task.name)
            table = None if vector is None else self.run.tower.uniform({vector: 1.0})
            found.append(None if table is None else self.run.score(table, number))
        return tuple(found)

    def finish(self, candidates: Sequence[_Candidate], *, asked: str, loop: LoopResult | None) -> AdaptResult:
        """The result of the best candidate for `auto`, else of the last, which the chosen method made."""
        base, own = candidates[0], self.own_scores()
        kept = max(candidates, key=lambda one: one.mean) if asked == AUTO else candidates[-1]
        tasks = [task.name for task in self.run.context.tasks]
        rows: list[tuple[str, Sequence[TaskScore | None]]] = [(one.method, one.scores) for one in candidates]
        estimates = [
            score.estimate(f"{method}, {name}")
            for method, scores in [*rows, (OWN, own)]
            for name, score in zip(tasks, scores, strict=True)
            if score is not None
        ]
        facts = {f"{name} before": score.share for name, score in zip(tasks, base.scores, strict=True)}
        facts |= {f"{name} after": score.share for name, score in zip(tasks, kept.scores, strict=True)}
        recipe = arithmetic_recipe(self.run, kept.method, kept.table, facts=facts)
        verdict = _verdict(kept, base, own)
        return build_result(recipe, verdict, self.run.progress, loop=loop, estimates=estimates)


def _verdict(kept: _Candidate, base: _Candidate, own: Sequence[TaskScore | None]) -> Verdict:
    helped = kept.mean > base.mean
    count, tasks = sum(score.total for score in base.scores), len(base.scores)
    if kept.method == ZERO_SHOT:
        sentence = f"Nothing beats zero-shot on the {count} images held out, so it was kept: {base.mean:.0%}."
        return Verdict(ZERO_SHOT, helped=False, sentence=sentence)
    known = [(score, best) for score, best in zip(kept.scores, own, strict=True) if best is not None]
    normal = [score.share / best.share for score, best in known if best.right]
    normalised = f", {statistics.fmean(normal):.0%} of what a model for each reaches" if normal else ""
    return Verdict(
        kept.method,
        helped=helped,
        sentence=f"One model for {tasks} tasks names {kept.mean:.0%} of what was held out{normalised}; "
        f"zero-shot {base.mean:.0%} (means over the tasks, {count} images).",
    )
