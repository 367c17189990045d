"""Forget a set of classes and keep another: from images of both to a result.

    search    one coefficient in −1 … 0 for the target's own vector: the lowest target accuracy in the bound
    learn     λ per block, on −CE(target) + CE(control)             (aTLAS, arXiv 2407.02880, section 4)
    scale     the learned λ by the factor that forgets most within the bound
    choose    the candidate that forgets most of the held-out target images within the bound

The bound: on held-out images, the control keeps at least a share (`keep`) of its zero-shot accuracy. Where
nothing is forgotten within the bound, zero-shot is kept and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from torch import Tensor

from atlas_engine.adapt.arithmetic.config import NegateConfig
from atlas_engine.adapt.arithmetic.recipes import arithmetic_recipe
from atlas_engine.adapt.arithmetic.tasks import TaskScore
from atlas_engine.adapt.arithmetic.training import ENCODED, SEARCHED, ArithmeticRun, ArithmeticTraining
from atlas_engine.adapt.context import AdaptContext
from atlas_engine.adapt.guards import StopFlag
from atlas_engine.adapt.methods import AUTO, ZERO_SHOT
from atlas_engine.adapt.optimise import LoopResult
from atlas_engine.adapt.results import build_result
from atlas_engine.adapt.trainable import LAM
from atlas_engine.bank.select import select_by_features
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.objectives.multitask import Forgetting
from atlas_engine.recipe import Json
from atlas_engine.result import AdaptResult, Step, Verdict

__all__ = ["ATLAS", "CONTROL", "NEGATIONS", "SCALAR", "TARGET", "negate"]

TARGET, CONTROL = "target", "control"
SCALAR, ATLAS = "scalar", "atlas"
NEGATIONS = (AUTO, SCALAR, ATLAS)
"""The better of the two; one searched coefficient for one vector; learned coefficients per block."""

LARGEST_SCALE, SCALE_STEP = 4.0, 0.25  # of the learned λ
SLACK = (
    0.1  # a control this far below the bound ends a search, because larger coefficients only make it worse
)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Coefficients, and the held-out scores of the target and the control."""

    method: str
    table: Tensor  # (T M)
    target: TaskScore
    control: TaskScore

    def within_bound(self, base: _Candidate, keep: float) -> bool:
        return self.control.right >= keep * base.control.right

    @property
    def rank(self) -> tuple[int, int]:
        """Lower is better: fewer target images right, then more control images right."""
        return self.target.right, -self.control.right


def negate(
    context: AdaptContext,
    *,
    vector: str | None,
    method: str,
    config: NegateConfig,
    seed: int,
    stop: StopFlag,
) -> Generator[Step, None, AdaptResult]:
    """Yield the steps of forgetting the context's first task while keeping its second, then the result.

    `vector` names the target's own vector, which the scalar search scales. By default it is the one whose
    training images are nearest or, where the bank does not record them, the one whose subtraction leaves the
    fewest target images right.
    """
    if method not in NEGATIONS:
        raise ConfigError(unknown_name("negation", method, NEGATIONS))
    run = ArithmeticRun(context, config, seed=seed, stop=stop)
    yield run.progress.phase("encode", 0, 1, share=ENCODED)
    base = _candidate(run, ZERO_SHOT, run.tower.zeros())
    own = _own_vector(run, vector)
    candidates, loop = [base], None
    if method in (AUTO, SCALAR):
        candidates.append((yield from _search_scalar(run, base, vector=own, config=config)))
    if method in (AUTO, ATLAS):
        training = yield from run.prepare_training(start=base.table)
        target_classes, control_classes = context.class_counts
        objective = Forgetting((target_classes, control_classes), enough=config.enough)
        loop = yield from training.learn(objective, choose=None)
        candidates.append(_best_scale(training, loop.values[LAM][0], base, keep=config.keep))
    return _finish(run, candidates, config=config, vector=own, loop=loop)


def _own_vector(run: ArithmeticRun, name: str | None) -> str:
    """The vector to scale: the given one, else the one with the nearest centroid, else by trying each."""
    bank = run.context.bank
    if name is not None:
        bank.select([name])  # an unknown name is refused here, with the nearest
        return name
    if len(bank) == 1:
        return bank.tasks[0]
    if not all(info.centroid for info in bank.infos):
        return min(bank.tasks, key=lambda task: _right_without(run, task))
    feature = run.tower.features(run.tower.zeros(), run.learned.of(0).pixels).mean(dim=0)
    return select_by_features(bank, feature, budget=1)[0]


def _right_without(run: ArithmeticRun, vector: str) -> int:
    """How many of the target images to learn from are classified right with this vector subtracted."""
    own = run.learned.of(0)
    return own.scores(run.tower.logits(run.tower.uniform({vector: -1.0}), own.pixels))[0].right


def _candidate(run: ArithmeticRun, method: str, table: Tensor) -> _Candidate:
    target, control = run.scores(table)
    return _Candidate(method, table, target, control)


def _search_scalar(
    run: ArithmeticRun, base: _Candidate, *, vector: str, config: NegateConfig
) -> Generator[Step, None, _Candidate]:
    """The best single coefficient of the vector within the bound; 0 where none is better."""
    best, count = base, round(1 / config.grid)
    for index in range(1, count + 1):
        share = ENCODED + (SEARCHED - ENCODED) * index / count
        yield run.progress.phase("search", index - 1, count, share=share)
        if run.stop.is_set():
            break
        candidate = _candidate(run, SCALAR, run.tower.uniform({vector: -index * config.grid}))
        if candidate.within_bound(base, config.keep) and candidate.rank < best.rank:
            best = candidate
        if not candidate.within_bound(base, config.keep - SLACK):
            break
    return _Candidate(SCALAR, best.table, best.target, best.control)


def _best_scale(training: ArithmeticTraining, lam: Tensor, base: _Candidate, *, keep: float) -> _Candidate:
    """The learned λ at the scale that forgets most within the bound; 0 where none does."""
    best = _Candidate(ATLAS, base.table, base.target, base.control)
    for index in range(1, round(LARGEST_SCALE / SCALE_STEP) + 1):
        scaled = index * SCALE_STEP * lam
        candidate = _Candidate(ATLAS, training.table(scaled), *training.scores(scaled))
        if candidate.within_bound(base, keep) and candidate.rank < best.rank:
            best = candidate
        if not candidate.within_bound(base, keep - SLACK):
            break
    return best


def _finish(
    run: ArithmeticRun,
    candidates: Sequence[_Candidate],
    *,
    config: NegateConfig,
    vector: str,
    loop: LoopResult | None,
) -> AdaptResult:
    base = candidates[0]
    kept = min((one for one in candidates if one.within_bound(base, config.keep)), key=lambda one: one.rank)
    kept = kept if kept.target.right < base.target.right else base
    facts: dict[str, Json] = {
        "vector": vector,
        "target_before": base.target.share,
        "target_after": kept.target.share,
        "control_before": base.control.share,
        "control_after": kept.control.share,
    }
    estimates = [one.target.estimate(f"{one.method}, {TARGET}") for one in candidates]
    estimates += [one.control.estimate(f"{one.method}, {CONTROL}") for one in candidates]
    recipe = arithmetic_recipe(run, kept.method, kept.table, facts=facts)
    verdict = _verdict(kept, base, config.keep)
    return build_result(recipe, verdict, run.progress, loop=loop, estimates=estimates)


def _verdict(kept: _Candidate, base: _Candidate, keep: float) -> Verdict:
    if kept is base:
        return Verdict(
            ZERO_SHOT,
            helped=False,
            sentence=f"Nothing could be forgotten while the control keeps {keep:.0%} of its accuracy, so "
            f"zero-shot was kept: it names {base.target.right} of {base.target.total} target images held out "
            f"and {base.control.right} of {base.control.total} control images.",
        )
    left = kept.control.right / base.control.right if base.control.right else 1.0
    return Verdict(
        kept.method,
        helped=True,
        sentence=f"Of {base.target.total} target images held out, {base.target.right} were named right "
        f"before and {kept.target.right} are now; of {base.control.total} control images "
        f"{base.control.right} before and {kept.control.right} now{_compared_to_bound(left, keep)}.",
    )


def _compared_to_bound(left: float, keep: float) -> str:
    """The end of the verdict's sentence: the share of the control's accuracy that is left, against `keep`.

    >>> _compared_to_bound(0.97, 0.95), _compared_to_bound(1.14, 0.95)
    (', which is 97% of before (95% was asked for)', ', none fewer')
    """
    return ", none fewer" if left >= 1 else f", which is {left:.0%} of before ({keep:.0%} was asked for)"
