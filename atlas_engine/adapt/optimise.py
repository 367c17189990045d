"""The only optimiser loop in the project. Knows nothing of banks, images or heads.

It is given a subject (tensors to learn, and logits at their values), an objective (what to make small) and a
source (a batch for each step), and yields a `Step` for each update. Several runs go side by side: every
learned tensor is (R ...), each run has its own seed, and none can disturb another.

One step: the model at the values, once → each run's loss goes backward, in micro-batches → one update. With
``sharpness`` the gradient is taken a second time, uphill of the values, and that one makes the update.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import torch
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.adamw import AdamState, adamw, keep_runs, per_run_norm, unit_norm
from atlas_engine.adapt.guards import DivergenceGuard, GuardedForward, RunGuard, StopFlag, StopRun
from atlas_engine.adapt.trainable import Forward, Trainable, TrainableTensor
from atlas_engine.config import Settings, setting
from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch, LogitsFn, Objective
from atlas_engine.result import Outcome, Step

__all__ = [
    "SCHEDULES",
    "BatchRequest",
    "Best",
    "LoopResult",
    "OptimiseConfig",
    "Schedule",
    "Score",
    "Source",
    "Tuner",
    "constant",
    "cosine",
    "optimise",
]


# ---- Learning rates over the steps of a run. Knows nothing of what is learned.
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
    """How to learn. The defaults are the paper's for few-shot."""

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
    """A source is asked for a batch: when, for which run, with which randomness and which model so far."""

    index: int
    of: int
    run: int
    generator: torch.Generator
    logits_fn: LogitsFn


Source = Callable[[BatchRequest], Batch]
Score = Callable[[Forward], Sequence[float]]
"""The model as it stands to one number per run; higher is better."""


@dataclass(frozen=True, eq=False)
class LoopResult:
    """How a loop ended, and what it had learned by then."""

    outcome: Outcome
    reason: str
    values: Mapping[str, Tensor]
    """Each (R ...): the last, or the best; of a diverged run the best, of a collapsed one the start."""
    best_scores: tuple[float, ...] | None  # one per run, where a score was given
    diverged: tuple[bool, ...]  # one per run
    collapsed: tuple[bool, ...]  # one per run
    steps: int
    seconds: float


def optimise(
    subject: Trainable,
    objective: Objective,
    source: Source,
    *,
    config: OptimiseConfig,
    seeds: Sequence[int] = (0,),
    score: Score | None = None,
    stop: StopFlag | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Step, None, LoopResult]:
    """Yield each step, then return how it ended. The same call gives the same answer, bit for bit.

    ``seeds`` has one number per run. Without a ``score``, the best step is the one with the lowest loss.
    """
    watch = RunGuard(deadline_seconds=config.deadline_seconds, stop=stop, clock=clock)
    loop = _Loop(subject, objective, source, config=config, seeds=seeds, score=score, watch=watch)
    try:
        for index in range(config.steps):
            if (step := loop.step(index)) is None:
                return loop.ending(Outcome.diverged, loop.health.summary(lr=config.lr))
            yield step
        loop.score_last()
    except StopRun as halt:
        return loop.ending(halt.outcome, halt.reason)
    trouble = loop.health.summary(lr=config.lr)
    return loop.ending(Outcome.finished, trouble or f"all {config.steps} steps were taken.")


@contextmanager
def _recording() -> Iterator[None]:
    """Autograd as the loop needs it: a caller may ask for steps under ``no_grad``, and learn nothing."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


class _Loop:
    @_recording()
    def __init__(
        self,
        subject: Trainable,
        objective: Objective,
        source: Source,
        *,
        config: OptimiseConfig,
        seeds: Sequence[int],
        score: Score | None,
        watch: RunGuard,
    ) -> None:
        self.subject, self.objective, self.source = subject, objective, source
        self.config, self.score, self.watch = config, score, watch
        self.generators = [runtime.generator(seed) for seed in seeds]
        normalise = config.gradient == "normalised"
        self.tuner = Tuner(
            subject.tensors_to_learn, lr=config.lr, weight_decay=config.weight_decay, normalise=normalise
        )
        if self.tuner.runs != len(seeds):
            raise ConfigError(
                f"{self.tuner.runs} runs start but there are {len(seeds)} seeds. Give one each."
            )
        self.start = self.tuner.values
        self.best = Best(self.start, runs=len(seeds))
        self.health = DivergenceGuard(len(seeds), blow_up=config.blow_up, floor=config.collapse_below)
        self.taken = 0

    @_recording()
    def step(self, index: int) -> Step | None:
        """One update; None when no run is left to go on."""
        values, sharp = self.tuner.values, self.config.sharpness > 0
        forward = self.forward(values)
        scores = self.scores(forward) if index % self.config.score_every == 0 else None
        batches = self.batches(forward, index)
        if sharp:
            batches = list(batches)  # to be used twice; else one is in memory at a time
        losses, norms, grads = self.measure(forward, batches, index)
        self.health.look_for_collapse(index, losses, norms)
        marks = [-loss for loss in losses] if self.score is None else scores
        self.best.offer(marks, values, self.health.alive)
        if sharp and any(self.health.alive):
            grads = self.measure(self.forward(self.uphill(grads)), batches, index)[2]
        if not any(self.health.alive):
            return None
        lr_factor = SCHEDULES[self.config.schedule](index, self.config.steps)
        self.tuner.update(grads, lr_factor=lr_factor, alive=self.health.alive)
        self.taken += 1
        return self.report(index, losses, norms, scores=scores, values=values, lr=self.config.lr * lr_factor)

    def forward(self, values: Mapping[str, Tensor]) -> GuardedForward:
        self.watch.check()
        return GuardedForward(self.subject.at(values), self.watch, self.config.micro_batch)

    def batches(self, forward: Forward, index: int) -> Iterable[tuple[int, Batch]]:
        """A batch for each run that goes on, drawn when it is asked for."""
        for run, alive in enumerate(self.health.alive):
            if alive:
                logits_fn = forward.logits_fn(run)
                request = BatchRequest(index, self.config.steps, run, self.generators[run], logits_fn)
                with torch.no_grad():
                    batch = self.source(request)
                yield run, batch

    def measure(
        self, forward: Forward, batches: Iterable[tuple[int, Batch]], index: int
    ) -> tuple[list[float], list[float], Mapping[str, Tensor]]:
        """Each run's loss (NaN for one that is over), its gradient's length, and the gradients."""
        losses = torch.full((self.tuner.runs,), math.nan, device=self.tuner.device)
        for run, batch in batches:
            if self.health.alive[run]:
                losses[run] = self.loss(forward.logits_fn(run), batch)
        grads = forward.gradients()
        measured = torch.stack([losses, _lengths(grads).float()]).tolist()  # the one wait for the device
        self.health.examine(index, *measured)
        return measured[0], measured[1], grads

    def loss(self, logits_fn: LogitsFn, batch: Batch) -> Tensor:
        """One run's loss; its gradient is left in the forward."""
        total = torch.zeros((), device=self.tuner.device)
        for part, share in self.parts(batch):
            loss = self.objective(logits_fn, part) * share
            if loss.requires_grad:  # a loss that found nothing to learn from is a plain 0
                torch.autograd.backward(loss)
            total = total + loss.detach().float()
        return total

    def uphill(self, grads: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """v + ρ g / ‖g‖ for each run that goes on, the length taken over all its tensors (SAM, ICLR 2021)."""
        lengths = _lengths(grads)
        mask = torch.tensor(self.health.alive, device=self.tuner.device) & (lengths > 0)
        reach = self.config.sharpness / torch.where(mask, lengths, torch.ones_like(lengths))  # (R)
        return {
            name: keep_runs(mask, value + grads[name] * reach.reshape(-1, *[1] * (value.ndim - 1)), value)
            for name, value in self.tuner.values.items()
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
            values = self.tuner.values
            self.best.offer(self.scores(self.forward(values)), values, self.health.alive)

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
        alive = [run for run, good in enumerate(self.health.alive) if good]
        return Step(
            index=index,
            of=self.config.steps,
            loss=sum(losses[run] for run in alive) / len(alive),
            losses=tuple(losses[run] if run in alive else math.nan for run in range(len(losses))),
            lr=lr,
            grad_norm=sum(norms[run] for run in alive) / len(alive),
            scores=scores,
            seconds=self.watch.seconds(),
            values=values,
        )

    @_recording()
    def ending(self, outcome: Outcome, reason: str) -> LoopResult:
        health, device = self.health, self.tuner.device
        latest = torch.tensor([good and self.config.keep == "last" for good in health.alive], device=device)
        undone = torch.tensor(health.collapsed, device=device)
        kept = {name: keep_runs(latest, v, self.best.values[name]) for name, v in self.tuner.values.items()}
        return LoopResult(
            outcome=outcome,
            reason=reason,
            values={name: keep_runs(undone, self.start[name], value) for name, value in kept.items()},
            best_scores=tuple(self.best.marks) if self.score is not None else None,
            diverged=tuple(
                not good and not fell for good, fell in zip(health.alive, health.collapsed, strict=True)
            ),
            collapsed=tuple(health.collapsed),
            steps=self.taken,
            seconds=self.watch.seconds(),
        )


def _lengths(grads: Mapping[str, Tensor]) -> Tensor:
    """(R): the length of each run's gradient, over all its tensors."""
    lengths: Tensor = torch.stack([per_run_norm(grad) for grad in grads.values()]).norm(dim=0)
    return lengths


# ---- The values being learned, AdamW's memory of them, and the best so far. Knows nothing of losses.
class Tuner:
    """The values being learned and AdamW's memory of each."""

    def __init__(
        self, learnables: Mapping[str, TrainableTensor], *, lr: float, weight_decay: float, normalise: bool
    ) -> None:
        self._learnables = dict(learnables)
        self._lr, self._weight_decay, self._normalise = lr, weight_decay, normalise
        self.values: Mapping[str, Tensor] = {n: one.start.detach().clone() for n, one in learnables.items()}
        self._states = {name: AdamState.zero(value) for name, value in self.values.items()}
        counts = {value.shape[0] for value in self.values.values()}
        if len(counts) != 1:
            raise ConfigError(
                f"what is to be learned has {sorted(counts)} runs. Every tensor needs the same R."
            )
        (self.runs,) = counts
        self.device = next(iter(self.values.values())).device

    def update(self, grads: Mapping[str, Tensor], *, lr_factor: float, alive: Sequence[bool]) -> None:
        """Move every value by one AdamW step, but for the runs that are over."""
        mask = torch.tensor(alive, device=self.device)
        values = {}
        for name, one in self._learnables.items():
            moved, self._states[name] = adamw(
                self.values[name],
                unit_norm(grads[name]) if _or(one.normalise, self._normalise) else grads[name],
                self._states[name],
                lr=self._lr * one.lr_scale * lr_factor,
                weight_decay=_or(one.weight_decay, self._weight_decay),
            )
            values[name] = keep_runs(mask, moved, self.values[name])
        self.values = values


class Best:
    """The best values so far, run by run. A tie keeps the earlier one, so step 0 is beaten or stays."""

    def __init__(self, start: Mapping[str, Tensor], *, runs: int) -> None:
        self.marks = [-math.inf] * runs
        self.values = dict(start)

    def offer(
        self, marks: Sequence[float] | None, values: Mapping[str, Tensor], alive: Sequence[bool]
    ) -> None:
        """Take the values of the runs whose mark is higher than ever."""
        if marks is None:
            return
        better = [good and new > old for good, new, old in zip(alive, marks, self.marks, strict=True)]
        self.marks = [new if won else old for won, new, old in zip(better, marks, self.marks, strict=True)]
        mask = torch.tensor(better, device=next(iter(values.values())).device)
        self.values = {name: keep_runs(mask, value, self.values[name]) for name, value in values.items()}


Value = TypeVar("Value")


def _or(own: Value | None, default: Value) -> Value:
    return default if own is None else own
