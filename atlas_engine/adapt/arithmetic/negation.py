"""Forget a set of classes and keep another: from images of both to a result.

    search    one coefficient for the target's own vector, −1 … 0: the lowest target within the bound
    learn     −CE(target) + CE(control) over λ per block            (aTLAS, arXiv 2407.02880, section 4)
    scale     the learned λ, as far as the bound allows
    choose    whichever forgets most of the held-out images, with the control within the bound

The bound: the control keeps at least a share (`keep`) of its zero-shot accuracy, on held-out images.
Where nothing is forgotten within the bound, zero-shot stays and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from torch import Tensor

from atlas_engine.adapt.arithmetic.config import NegateConfig
from atlas_engine.adapt.arithmetic.recipes import arithmetic_recipe
from atlas_engine.adapt.arithmetic.tasks import TaskScore
from atlas_engine.adapt.arithmetic.training import LOOKED, SEARCHED, ArithmeticRun, ArithmeticTraining
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
"""Whichever is better, one searched coefficient for one vector, or learned coefficients per block."""

LARGEST_SCALE, SCALE_STEP = 4.0, 0.25  # of the learned λ
SLACK = 0.1  # a control so far below the bound ends a search: larger coefficients are worse still


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
        """The lower the better: less of the target, then more of the control."""
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

    `vector` is the target's own, which a scalar search scales; by default the one whose images are nearest
    or, where the bank does not know, the one without which fewest target images are named right.
    """
    if method not in NEGATIONS:
        raise ConfigError(unknown_name("negation", method, NEGATIONS))
    run = ArithmeticRun(context, config, seed=seed, stop=stop)
    yield run.progress.phase("look", 0, 1, share=LOOKED)
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
    """The vector to scale: as named, by its data set's centroid, or by trying each one."""
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
    """How many target images to learn from are named right with this vector subtracted once."""
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
        share = LOOKED + (SEARCHED - LOOKED) * index / count
        yield run.progress.phase("search", index - 1, count, share=share)
        if run.stop.is_set():
            break
        one = _candidate(run, SCALAR, run.tower.uniform({vector: -index * config.grid}))
        best = one if one.within_bound(base, config.keep) and one.rank < best.rank else best
        if not one.within_bound(base, config.keep - SLACK):
            break
    return _Candidate(SCALAR, best.table, best.target, best.control)


def _best_scale(training: ArithmeticTraining, lam: Tensor, base: _Candidate, *, keep: float) -> _Candidate:
    """The learned λ at the scale that forgets most within the bound; 0 where none does."""
    best = _Candidate(ATLAS, base.table, base.target, base.control)
    for index in range(1, round(LARGEST_SCALE / SCALE_STEP) + 1):
        scaled = index * SCALE_STEP * lam
        one = _Candidate(ATLAS, training.table(scaled), *training.scores(scaled))
        best = one if one.within_bound(base, keep) and one.rank < best.rank else best
        if not one.within_bound(base, keep - SLACK):
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
    """How the share of the control that is left compares with what was asked for.

    >>> _compared_to_bound(0.97, 0.95), _compared_to_bound(1.14, 0.95)
    (', which is 97% of before (95% was asked for)', ', none fewer')
    """
    return ", none fewer" if left >= 1 else f", which is {left:.0%} of before ({keep:.0%} was asked for)"
