"""The optimiser loop of all adaptations that train by gradient steps.

    for step in optimise(trainable, objective, sampler, config=OptimiseConfig(steps=24)): ...

A `Trainable` gives the tensors to learn and the logits at their values, an objective the loss to minimise,
and a sampler the batch of each step. R runs are trained side by side: every learned tensor is (R …), each run
has its own seed, and no run influences another.

A step composes the model once at the current values, runs the loss of each run backward in micro-batches, and
takes one AdamW update. With `sharpness` (SAM), the update takes its gradient at values moved uphill.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import torch
from jaxtyping import Float
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.adamw import BestValues, LearnedValues, keep_runs, per_run_norm
from atlas_engine.adapt.guards import DivergenceGuard, GuardedForward, RunGuard, StopFlag, StopRun
from atlas_engine.adapt.trainable import Forward, Trainable
from atlas_engine.config import Settings, setting
from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch, LogitsFn, Objective
from atlas_engine.result import Outcome, Step

__all__ = [
    "SCHEDULES",
    "BatchRequest",
    "LoopControls",
    "LoopResult",
    "OptimiseConfig",
    "Sampler",
    "Schedule",
    "Score",
    "constant",
    "cosine",
    "join_loops",
    "optimise",
]


Schedule = Callable[[int, int], float]
"""(index, of) to the factor on the learning rate, for index in 0 … of − 1."""


def cosine(index: int, of: int) -> float:
    """½ (1 + cos(π index / of)): 1 at the first step, near 0 at the last, without warm-up.

    >>> [round(cosine(i, 4), 3) for i in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    return 0.5 * (1.0 + math.cos(math.pi * index / of))


def constant(index: int, of: int) -> float:  # noqa: ARG001 - one signature for the table
    """1 at every step."""
    return 1.0


SCHEDULES: MappingProxyType[str, Schedule] = MappingProxyType({"cosine": cosine, "constant": constant})


@dataclass(frozen=True, kw_only=True)
class LoopControls(Settings):
    """Settings of the loop that are the same for all methods."""

    schedule: str = setting("cosine", help="learning rate over the steps", choices=tuple(SCHEDULES))
    gradient: str = setting(
        "normalised",
        help="scale each gradient to length 1, or take it plain",
        choices=("normalised", "plain"),
    )
    micro_batch: int | None = setting(
        None, help="images in the model at a time", low=1, unset="the method's own, all of a batch for most"
    )
    keep: str = setting("last", help="which coefficients to keep", choices=("last", "best"))
    score_every: int = setting(10, help="steps between two scores", low=1)
    deadline_seconds: float | None = setting(None, help="end the run after this time", low=0.0)
    blow_up: float = setting(
        10.0, help="a loss that grows by this many times (1 + the first loss) has diverged", low=1.0
    )
    collapse_below: float | None = setting(
        None, help="a smoothed loss below this is a collapse: the run goes back to its start", low=0.0
    )


@dataclass(frozen=True, kw_only=True)
class OptimiseConfig(LoopControls):
    """Settings of the loop. The defaults are the paper's for few-shot (aTLAS, section 5)."""

    steps: int = setting(100, help="optimiser steps", low=0, high=100_000)
    lr: float = setting(0.1, help="learning rate of the first step", low=0.0, high=100.0)
    weight_decay: float = setting(0.1, help="pull of the coefficients to zero, that is to zero-shot", low=0.0)
    sharpness: float = setting(
        0.0,
        help="how far uphill the gradient is taken (SAM), to find flat minima; 0 for plain gradients",
        low=0.0,
    )


@dataclass(frozen=True, eq=False)
class BatchRequest:
    """A request for the batch of one run at step `index`."""

    index: int
    of: int
    run: int
    generator: torch.Generator  # the run's own
    logits_fn: LogitsFn  # the run's model at this step


Sampler = Callable[[BatchRequest], Batch]
Score = Callable[[Forward], Sequence[float]]
"""One number per run for the model at the current values; higher is better."""


@dataclass(frozen=True, eq=False)
class LoopResult:
    """How a loop ended, and the values it learned."""

    outcome: Outcome
    reason: str
    values: Mapping[str, Tensor]
    """Each (R …): the last or the best values; the best for a diverged run, the start for a collapsed one."""
    best_scores: tuple[float, ...] | None  # one per run, where a score was given
    diverged: tuple[bool, ...]  # one per run
    collapsed: tuple[bool, ...]  # one per run
    steps: int
    seconds: float


def optimise(
    trainable: Trainable,
    objective: Objective,
    sampler: Sampler,
    *,
    config: OptimiseConfig,
    seeds: Sequence[int] = (0,),
    score: Score | None = None,
    stop: StopFlag | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Step, None, LoopResult]:
    """Yield each step, then return the loop's result. The same call gives the same result, bit for bit.

    `seeds` has one seed per run. Without a `score`, the best step is the one with the lowest loss.
    """
    guard = RunGuard(deadline_seconds=config.deadline_seconds, stop=stop, clock=clock)
    loop = _Loop(trainable, objective, sampler, config=config, seeds=seeds, score=score, guard=guard)
    try:
        for index in range(config.steps):
            if (step := loop.step(index)) is None:
                return loop.result(Outcome.diverged, loop.divergence.summary(lr=config.lr))
            yield step
        loop.score_last()
    except StopRun as halt:
        return loop.result(halt.outcome, halt.reason)
    trouble = loop.divergence.summary(lr=config.lr)
    return loop.result(Outcome.finished, trouble or f"all {config.steps} steps were taken.")


def join_loops(loops: Sequence[LoopResult], *, start: Mapping[str, Tensor]) -> LoopResult:
    """The results of groups of runs, trained one after another, as one result of all runs.

    `start` (R …) has the values that runs keep whose group was never reached, because the loop was stopped.
    """
    if len(loops) == 1 and len(loops[0].diverged) == len(next(iter(start.values()))):
        return loops[0]
    reached = sum(len(loop.diverged) for loop in loops)
    missing = len(next(iter(start.values()))) - reached
    # stopped where one group was, diverged where all did, and otherwise finished
    ranked = (Outcome.cancelled, Outcome.deadline, Outcome.finished, Outcome.diverged)
    outcome = min((loop.outcome for loop in loops), key=ranked.index)
    scores = [loop.best_scores for loop in loops if loop.best_scores is not None]
    return LoopResult(
        outcome=outcome,
        reason=next(loop.reason for loop in loops if loop.outcome is outcome),
        values={
            name: torch.cat([*(loop.values[name] for loop in loops), value[reached:]])
            for name, value in start.items()
        },
        best_scores=tuple(score for group in scores for score in group) if scores else None,
        diverged=(*(run for loop in loops for run in loop.diverged), *[False] * missing),
        collapsed=(*(run for loop in loops for run in loop.collapsed), *[False] * missing),
        steps=min(loop.steps for loop in loops),
        seconds=sum(loop.seconds for loop in loops),
    )


@contextmanager
def _recording() -> Iterator[None]:
    """Switch autograd on, because the caller may iterate over the steps under `no_grad`."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


class _Loop:
    """The state of one loop: R runs, their values, and which of them are alive."""

    @_recording()
    def __init__(
        self,
        trainable: Trainable,
        objective: Objective,
        sampler: Sampler,
        *,
        config: OptimiseConfig,
        seeds: Sequence[int],
        score: Score | None,
        guard: RunGuard,
    ) -> None:
        self.trainable, self.objective, self.sampler = trainable, objective, sampler
        self.config, self.score, self.guard = config, score, guard
        self.generators = [runtime.generator(seed) for seed in seeds]
        normalise = config.gradient == "normalised"
        self.learned = LearnedValues(
            trainable.tensors_to_learn, lr=config.lr, weight_decay=config.weight_decay, normalise=normalise
        )
        if self.learned.runs != len(seeds):
            raise ConfigError(
                f"{self.learned.runs} runs start but there are {len(seeds)} seeds. Give one each."
            )
        self.start = self.learned.values
        self.best = BestValues(self.start, runs=len(seeds))
        self.divergence = DivergenceGuard(len(seeds), blow_up=config.blow_up, floor=config.collapse_below)
        self.taken = 0

    @_recording()
    def step(self, index: int) -> Step | None:
        """One update; None where no run is alive."""
        values, sharp = self.learned.values, self.config.sharpness > 0
        # the model at the values, composed once for all runs, views and micro-batches
        forward = self.forward(values)
        scores = self.scores(forward) if index % self.config.score_every == 0 else None
        batches = self.batches(forward, index)
        if sharp:
            batches = list(batches)  # used twice; otherwise only one batch is in memory at a time
        # loss and gradient of each run
        losses, norms, grads = self.measure(forward, batches, index)
        self.divergence.check_collapse(index, losses, norms)
        ranking = [-loss for loss in losses] if self.score is None else scores
        self.best.offer(ranking, values, self.divergence.alive)
        # SAM: take the gradient again at values moved uphill
        if sharp and any(self.divergence.alive):
            _, _, grads = self.measure(self.forward(self.ascend(grads)), batches, index)
        if not any(self.divergence.alive):
            return None
        # one AdamW update
        lr_factor = SCHEDULES[self.config.schedule](index, self.config.steps)
        self.learned.update(grads, lr_factor=lr_factor, alive=self.divergence.alive)
        self.taken += 1
        return self.report(index, losses, norms, scores=scores, values=values, lr=self.config.lr * lr_factor)

    def forward(self, values: Mapping[str, Tensor]) -> GuardedForward:
        self.guard.check()
        return GuardedForward(self.trainable.at(values), self.guard, self.config.micro_batch)

    def batches(self, forward: Forward, index: int) -> Iterable[tuple[int, Batch]]:
        """The batch of each run that is alive, drawn lazily."""
        for run, alive in enumerate(self.divergence.alive):
            if alive:
                logits_fn = forward.logits_fn(run)
                request = BatchRequest(index, self.config.steps, run, self.generators[run], logits_fn)
                with torch.no_grad():
                    batch = self.sampler(request)
                yield run, batch

    def measure(
        self, forward: Forward, batches: Iterable[tuple[int, Batch]], index: int
    ) -> tuple[list[float], list[float], Mapping[str, Tensor]]:
        """Each run's loss (NaN for one that has ended), its gradient norm, and the gradients by name."""
        losses = torch.full((self.learned.runs,), math.nan, device=self.learned.device)
        for run, batch in batches:
            if self.divergence.alive[run]:
                losses[run] = self.loss(forward.logits_fn(run), batch)
        grads = forward.gradients()
        # one transfer to the CPU, because each waits for the device
        measured_losses, norms = torch.stack([losses, _gradient_norms(grads).float()]).tolist()
        self.divergence.examine(index, measured_losses, norms)
        return measured_losses, norms, grads

    def loss(self, logits_fn: LogitsFn, batch: Batch) -> Float[Tensor, ""]:
        """One run's loss, after its backward pass; `Forward.gradients` has the gradient."""
        total = torch.zeros((), device=self.learned.device)
        for part, share in self.parts(batch):
            loss = self.objective(logits_fn, part) * share
            if loss.requires_grad:  # the loss of a batch without any image to learn from is a constant 0
                torch.autograd.backward(loss)
            total = total + loss.detach().float()
        return total

    def ascend(self, grads: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """v + ρ g / ‖g‖ for each run that is alive, with the norm over all its tensors (SAM, ICLR 2021)."""
        norms = _gradient_norms(grads)
        mask = torch.tensor(self.divergence.alive, device=self.learned.device) & (norms > 0)
        scale = self.config.sharpness / torch.where(mask, norms, torch.ones_like(norms))  # (R)
        return {
            name: keep_runs(mask, value + grads[name] * scale.reshape(-1, *[1] * (value.ndim - 1)), value)
            for name, value in self.learned.values.items()
        }

    def parts(self, batch: Batch) -> list[tuple[Batch, Tensor | float]]:
        """The micro-batches of a step, each with its share of the loss."""
        size = self.config.micro_batch
        if size is None or len(batch) <= size or not self.objective.additive:
            return [(batch, 1.0)]
        parts = list(batch.split(size))
        weights = torch.stack([part.total_weight() for part in parts])
        total = weights.sum()
        shares = weights / torch.where(total > 0, total, torch.ones_like(total))
        return list(zip(parts, shares, strict=True))

    def scores(self, forward: Forward) -> tuple[float, ...] | None:
        if self.score is None:
            return None
        with torch.no_grad():
            return tuple(float(number) for number in self.score(forward))

    @_recording()
    def score_last(self) -> None:
        """Score the values after the last update, which may be the best."""
        if self.score is not None:
            values = self.learned.values
            self.best.offer(self.scores(self.forward(values)), values, self.divergence.alive)

    def report(
        self,
        index: int,
        losses: list[float],
        norms: list[float],
        *,
        scores: tuple[float, ...] | None,
        values: Mapping[str, Tensor],
        lr: float,
    ) -> Step:
        alive = [run for run, is_alive in enumerate(self.divergence.alive) if is_alive]
        return Step(
            index=index,
            of=self.config.steps,
            loss=sum(losses[run] for run in alive) / len(alive),
            losses=tuple(losses[run] if run in alive else math.nan for run in range(len(losses))),
            lr=lr,
            grad_norm=sum(norms[run] for run in alive) / len(alive),
            scores=scores,
            seconds=self.guard.seconds(),
            values=values,
        )

    @_recording()
    def result(self, outcome: Outcome, reason: str) -> LoopResult:
        alive, collapsed = self.divergence.alive, self.divergence.collapsed
        device = self.learned.device
        # the last values of runs that are alive, if asked for, else the best; a collapsed run's start
        keep_last = torch.tensor(
            [is_alive and self.config.keep == "last" for is_alive in alive], device=device
        )
        reset = torch.tensor(collapsed, device=device)
        values = {}
        for name, last in self.learned.values.items():
            kept = keep_runs(keep_last, last, self.best.values[name])
            values[name] = keep_runs(reset, self.start[name], kept)
        return LoopResult(
            outcome=outcome,
            reason=reason,
            values=values,
            best_scores=tuple(self.best.scores) if self.score is not None else None,
            diverged=tuple(
                not is_alive and not is_collapsed
                for is_alive, is_collapsed in zip(alive, collapsed, strict=True)
            ),
            collapsed=tuple(collapsed),
            steps=self.taken,
            seconds=self.guard.seconds(),
        )


def _gradient_norms(grads: Mapping[str, Tensor]) -> Float[Tensor, " R"]:
    """The norm of each run's gradient over all its tensors."""
    norms: Tensor = torch.stack([per_run_norm(grad) for grad in grads.values()]).norm(dim=0)
    return norms
