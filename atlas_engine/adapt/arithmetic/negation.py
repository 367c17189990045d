"""Forget a set of classes, keep another: from pictures of both to a result. Knows nothing of files.

    search    one coefficient for the target's own vector, −1 … 0: the lowest target within the bound
    learn     −CE(target) + CE(control) over λ per block            (aTLAS, arXiv 2407.02880, section 4)
    scale     what was learned, as far as the bound allows
    choose    whichever forgets most of what is held out, with the control within the bound

The bound: the control keeps at least a share (`keep`) of its zero-shot accuracy, on pictures held out of it.
Where nothing is forgotten within the bound, zero-shot stays and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from torch import Tensor

from atlas_engine.adapt.arithmetic.config import NegateConfig
from atlas_engine.adapt.arithmetic.course import LOOKING, SEARCHING, ArithmeticRun, ArithmeticTraining
from atlas_engine.adapt.arithmetic.recipes import recipe_of, result_of
from atlas_engine.adapt.arithmetic.scene import ArithmeticContext, TaskScore
from atlas_engine.adapt.guards import StopFlag
from atlas_engine.adapt.optimise import LoopResult
from atlas_engine.adapt.verdict import ZERO_SHOT
from atlas_engine.bank.select import select_by_features
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.objectives.multitask import Forgetting
from atlas_engine.recipe import Json
from atlas_engine.result import AdaptResult, Step, Verdict

__all__ = ["ATLAS", "AUTO", "CONTROL", "NEGATIONS", "SCALAR", "TARGET", "negate"]

TARGET, CONTROL = "target", "control"
AUTO, SCALAR, ATLAS = "auto", "scalar", "atlas"
NEGATIONS = (AUTO, SCALAR, ATLAS)
"""Whichever is better, one searched coefficient for one vector, or learned coefficients per block."""

REACH, STRIDE = 4.0, 0.25  # how far what was learned is scaled, in steps of this
SLACK = 0.1  # a control so far below the bound ends a search: what lies beyond is worse, and no accident


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Coefficients, and what they get right of the target and the control held out."""

    method: str
    table: Tensor  # (T M)
    target: TaskScore
    control: TaskScore

    def allowed(self, base: _Candidate, keep: float) -> bool:
        return self.control.right >= keep * base.control.right

    @property
    def rank(self) -> tuple[int, int]:
        """The lower the better: less of the target, then more of the control."""
        return self.target.right, -self.control.right


def negate(
    scene: ArithmeticContext,
    *,
    vector: str | None,
    method: str,
    config: NegateConfig,
    seed: int,
    stop: StopFlag,
) -> Generator[Step, None, AdaptResult]:
    """Forget the scene's first task and keep its second.

    `vector` is the target's own, which a scalar search scales; by default the one whose images are nearest
    or, where the bank does not know that, the one without which the least of the target is named right.
    """
    if method not in NEGATIONS:
        raise ConfigError(unknown_name("negation", method, NEGATIONS))
    course = ArithmeticRun(scene, config, seed=seed, stop=stop)
    yield course.story.mark("look", 0, 1, share=LOOKING)
    base = _candidate(course, ZERO_SHOT, course.whole.zeros())
    own = _own_vector(course, vector)
    found, ending = [base], None
    if method in (AUTO, SCALAR):
        found.append((yield from _search(course, base, vector=own, config=config)))
    if method in (AUTO, ATLAS):
        lesson = yield from course.lesson(start=base.table)
        objective = Forgetting((scene.sizes[0], scene.sizes[1]), enough=config.enough)
        learned = yield from lesson.learn(objective, choose=None)
        found.append(_furthest(lesson, learned.lam, base, keep=config.keep))
        ending = learned.ending
    return _ended(course, found, config=config, vector=own, ending=ending)


def _own_vector(course: ArithmeticRun, name: str | None) -> str:
    bank = course.scene.bank
    if name is not None:
        bank.select([name])  # an unknown name is refused here, with the nearest
        return name
    if len(bank) == 1:
        return bank.tasks[0]
    if not all(info.centroid for info in bank.infos):
        return min(bank.tasks, key=lambda task: _shown_right(course, task))
    feature = course.whole.features(course.whole.zeros(), course.shown.of(0).squares).mean(dim=0)
    return select_by_features(bank, feature, budget=1)[0]


def _shown_right(course: ArithmeticRun, vector: str) -> int:
    """Target pictures to learn from that are still named right with this vector taken away once."""
    own = course.shown.of(0)
    return own.marks(course.whole.logits(course.whole.along({vector: -1.0}), own.squares))[0].right


def _candidate(course: ArithmeticRun, method: str, table: Tensor) -> _Candidate:
    target, control = course.marks(table)
    return _Candidate(method, table, target, control)


def _search(
    course: ArithmeticRun, base: _Candidate, *, vector: str, config: NegateConfig
) -> Generator[Step, None, _Candidate]:
    """The best single coefficient of the vector within the bound; zero-shot's own where there is none."""
    best, count = base, round(1 / config.grid)
    for index in range(1, count + 1):
        share = LOOKING + (SEARCHING - LOOKING) * index / count
        yield course.story.mark("search", index - 1, count, share=share)
        if course.stop.is_set():
            break
        one = _candidate(course, SCALAR, course.whole.along({vector: -index * config.grid}))
        best = one if one.allowed(base, config.keep) and one.rank < best.rank else best
        if not one.allowed(base, config.keep - SLACK):
            break
    return _Candidate(SCALAR, best.table, best.target, best.control)


def _furthest(lesson: ArithmeticTraining, lam: Tensor, base: _Candidate, *, keep: float) -> _Candidate:
    """What was learned, scaled as far as the bound allows: the best of it within the bound."""
    best = _Candidate(ATLAS, base.table, base.target, base.control)
    for index in range(1, round(REACH / STRIDE) + 1):
        scaled = index * STRIDE * lam
        one = _Candidate(ATLAS, lesson.table(scaled), *lesson.marks(scaled))
        best = one if one.allowed(base, keep) and one.rank < best.rank else best
        if not one.allowed(base, keep - SLACK):
            break
    return best


def _ended(
    course: ArithmeticRun,
    found: Sequence[_Candidate],
    *,
    config: NegateConfig,
    vector: str,
    ending: LoopResult | None,
) -> AdaptResult:
    base = found[0]
    kept = min((one for one in found if one.allowed(base, config.keep)), key=lambda one: one.rank)
    kept = kept if kept.target.right < base.target.right else base
    facts: dict[str, Json] = {
        "vector": vector,
        "target_before": base.target.share,
        "target_after": kept.target.share,
        "control_before": base.control.share,
        "control_after": kept.control.share,
    }
    estimates = [one.target.estimate(f"{one.method}, {TARGET}") for one in found]
    estimates += [one.control.estimate(f"{one.method}, {CONTROL}") for one in found]
    recipe, verdict = (
        recipe_of(course, kept.method, kept.table, facts=facts),
        _verdict(kept, base, config.keep),
    )
    return result_of(course, recipe, verdict=verdict, estimates=estimates, ending=ending)


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
        f"{base.control.right} before and {kept.control.right} now{_beside(left, keep)}.",
    )


def _beside(left: float, keep: float) -> str:
    """How that is beside what was asked of the control.

    >>> _beside(0.97, 0.95), _beside(1.14, 0.95)
    (', which is 97% of before (95% was asked for)', ', none fewer')
    """
    return ", none fewer" if left >= 1 else f", which is {left:.0%} of before ({keep:.0%} was asked for)"
