"""The optimiser loop: the one place where anything is learned step by step.

The loop is given a `Trainable` (tensors to learn, and logits at their values), an objective (what to
minimise) and a sampler (a batch for each step), and yields a `Step` for each update. Several runs go side by
side: every learned tensor is (R …), each run has its own seed, and none can disturb another.

One step: the model at the values, composed once → the loss of each run goes backward, in micro-batches → one
update. With `sharpness` (SAM) the gradient is taken a second time, uphill of the values, and that one
updates.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import torch
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
    "LoopResult",
    "OptimiseConfig",
    "Sampler",
    "Schedule",
    "Score",
    "constant",
    "cosine",
    "optimise",
]


Schedule = Callable[[int, int], float]
"""(index, of) to the factor on the learning rate, for index in 0 … of − 1."""


def cosine(index: int, of: int) -> float:
    """½ (1 + cos(π index / of)): 1 at the first step, no warm-up, near 0 at the last.

    >>> [round(cosine(i, 4), 3) for i in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    return 0.5 * (1.0 + math.cos(math.pi * index / of))


def constant(index: int, of: int) -> float:  # noqa: ARG001 - one signature for the table
    """1 at every step."""
    return 1.0


SCHEDULES: MappingProxyType[str, Schedule] = MappingProxyType({"cosine": cosine, "constant": constant})


@dataclass(frozen=True, kw_only=True)
class OptimiseConfig(Settings):
    """How to learn. The defaults are the paper's for few-shot (aTLAS, section 5)."""

    steps: int = setting(100, help="optimiser steps", low=0, high=100_000)
    lr: float = setting(0.1, help="learning rate of the first step", low=0.0, high=100.0)
    weight_decay: float = setting(0.1, help="pull of the coefficients to zero, that is to zero-shot", low=0.0)
    schedule: str = setting("cosine", help="learning rate over the steps", choices=tuple(SCHEDULES))
    gradient: str = setting(
        "normalised",
        help="scale each gradient to length 1, or take it plain",
        choices=("normalised", "plain"),
    )
    micro_batch: int | None = setting(
        None, help="images in the model at a time; all of a batch if unset", low=1
    )
    keep: str = setting("last", help="which coefficients to keep", choices=("last", "best"))
    score_every: int = setting(10, help="steps between two scores", low=1)
    deadline_seconds: float | None = setting(None, help="end the run after this time", low=0.0)
    blow_up: float = setting(
        10.0, help="a loss that grows by this many times (1 + the first loss) has diverged", low=1.0
    )
    sharpness: float = setting(
        0.0,
        help="how far uphill the gradient is taken, to find flat minima; 0 for where the values are",
        low=0.0,
    )
    collapse_below: float | None = setting(
        None, help="a smoothed loss below this is a collapse: the run goes back to its start", low=0.0
    )


@dataclass(frozen=True, eq=False)
class BatchRequest:
    """What a sampler is asked for: the batch of step `index`, for one run, with its randomness and its
    model."""

    index: int
    of: int
    run: int
    generator: torch.Generator
    logits_fn: LogitsFn


Sampler = Callable[[BatchRequest], Batch]
Score = Callable[[Forward], Sequence[float]]
"""A number per run for the model as it stands; higher is better."""


@dataclass(frozen=True, eq=False)
class LoopResult:
    """How a loop ended, and what it had learned by then."""

    outcome: Outcome
    reason: str
    values: Mapping[str, Tensor]
    """Each (R …): the last or the best; of a diverged run the best, of a collapsed one the start."""
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
    """Yield each step, then return how the loop ended. The same call gives the same answer, bit for bit.

    `seeds` has one number per run. Without a `score`, the best step is the one with the lowest loss.
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


@contextmanager
def _recording() -> Iterator[None]:
    """Autograd switched on: the caller may be iterating over the steps under `no_grad`."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


class _Loop:
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
        """One update; None when no run is left to go on."""
        values, sharp = self.learned.values, self.config.sharpness > 0
        # the model at the values, composed once for all runs, views and micro-batches
        forward = self.forward(values)
        scores = self.scores(forward) if index % self.config.score_every == 0 else None
        batches = self.batches(forward, index)
        if sharp:
            batches = list(batches)  # to be used twice; else one is in memory at a time
        # loss and gradient of each run
        losses, norms, grads = self.measure(forward, batches, index)
        self.divergence.look_for_collapse(index, losses, norms)
        ranking = [-loss for loss in losses] if self.score is None else scores
        self.best.offer(ranking, values, self.divergence.alive)
        # SAM: the gradient uphill of the values takes the place of the one at them
        if sharp and any(self.divergence.alive):
            grads = self.measure(self.forward(self.ascended(grads)), batches, index)[2]
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
        """A batch for each run that goes on, drawn when it is asked for."""
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
        """Each run's loss (NaN for one that is over), its gradient's length, and the gradients."""
        losses = torch.full((self.learned.runs,), math.nan, device=self.learned.device)
        for run, batch in batches:
            if self.divergence.alive[run]:
                losses[run] = self.loss(forward.logits_fn(run), batch)
        grads = forward.gradients()
        measured = torch.stack(
            [losses, _gradient_norms(grads).float()]
        ).tolist()  # the one wait for the device
        self.divergence.examine(index, *measured)
        return measured[0], measured[1], grads

    def loss(self, logits_fn: LogitsFn, batch: Batch) -> Tensor:
        """One run's loss; its gradient is left in the forward."""
        total = torch.zeros((), device=self.learned.device)
        for part, share in self.parts(batch):
            loss = self.objective(logits_fn, part) * share
            if loss.requires_grad:  # a loss that found nothing to learn from is a plain 0
                torch.autograd.backward(loss)
            total = total + loss.detach().float()
        return total

    def ascended(self, grads: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """v + ρ g / ‖g‖ for each run that goes on, the length taken over all its tensors (SAM, ICLR 2021)."""
        lengths = _gradient_norms(grads)
        mask = torch.tensor(self.divergence.alive, device=self.learned.device) & (lengths > 0)
        reach = self.config.sharpness / torch.where(mask, lengths, torch.ones_like(lengths))  # (R)
        return {
            name: keep_runs(mask, value + grads[name] * reach.reshape(-1, *[1] * (value.ndim - 1)), value)
            for name, value in self.learned.values.items()
        }

    def parts(self, batch: Batch) -> list[tuple[Batch, Tensor | float]]:
        """The micro-batches of a step, each with its share of the loss."""
        size = self.config.micro_batch
        if size is None or len(batch) <= size or not self.objective.additive:
            return [(batch, 1.0)]
        parts = list(batch.split(size))
        masses = torch.stack([part.total_weight() for part in parts])
        total = masses.sum()
        return list(zip(parts, masses / torch.where(total > 0, total, torch.ones_like(total)), strict=True))

    def scores(self, forward: Forward) -> tuple[float, ...] | None:
        if self.score is None:
            return None
        with torch.no_grad():
            return tuple(float(number) for number in self.score(forward))

    @_recording()
    def score_last(self) -> None:
        """Give the values after the last update their chance to be the best."""
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
        alive = [run for run, good in enumerate(self.divergence.alive) if good]
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
        divergence, device = self.divergence, self.learned.device
        latest = torch.tensor(
            [good and self.config.keep == "last" for good in divergence.alive], device=device
        )
        undone = torch.tensor(divergence.collapsed, device=device)
        kept = {name: keep_runs(latest, v, self.best.values[name]) for name, v in self.learned.values.items()}
        return LoopResult(
            outcome=outcome,
            reason=reason,
            values={name: keep_runs(undone, self.start[name], value) for name, value in kept.items()},
            best_scores=tuple(self.best.scores) if self.score is not None else None,
            diverged=tuple(
                not good and not fell
                for good, fell in zip(divergence.alive, divergence.collapsed, strict=True)
            ),
            collapsed=tuple(divergence.collapsed),
            steps=self.taken,
            seconds=self.guard.seconds(),
        )


def _gradient_norms(grads: Mapping[str, Tensor]) -> Tensor:
    """(R): the length of each run's gradient, over all its tensors."""
    lengths: Tensor = torch.stack([per_run_norm(grad) for grad in grads.values()]).norm(dim=0)
    return lengths
