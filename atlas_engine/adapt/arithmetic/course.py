"""What forgetting and adding go through alike: looking, learning, telling how far. Knows nothing of verdicts.

course = Course(scene, config, seed=seed, stop=stop)
course.held                                              # pictures to choose by
lesson = yield from course.lesson(start=table)
learned = yield from lesson.learn(TaskCrossEntropy(scene.sizes), choose=choose)
lesson.table(learned.lam), learned.ending.outcome
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.arithmetic.config import ArithmeticConfig
from atlas_engine.adapt.arithmetic.scene import ArithmeticContext, TaskScore, split_held_out
from atlas_engine.adapt.arithmetic.tower import CHUNK, LateTower, WholeTower
from atlas_engine.adapt.guards import StopFlag
from atlas_engine.adapt.optimise import BatchRequest, LoopResult, optimise
from atlas_engine.adapt.progress import Progress
from atlas_engine.adapt.trainable import LAM, Forward
from atlas_engine.data.augment import Augment
from atlas_engine.objectives.base import Batch, Objective
from atlas_engine.result import Step

__all__ = [
    "LOOKING",
    "SEARCHING",
    "ArithmeticRun",
    "ArithmeticTraining",
    "LearnedCoefficients",
    "TaskSampler",
]

VIEW = Augment(smallest=0.7, flip=False, jitter=0.0)
"""A random view. Nothing is mirrored: tasks that are added are often signs, digits or letters."""

LOOKING, SEARCHING = 0.15, 0.4  # how much of the work is done by the end of each, about

Choose = Callable[[tuple[TaskScore, ...]], float]
"""The held-out marks of all tasks to one number, the higher the better."""


@dataclass(frozen=True, eq=False)
class LearnedCoefficients:
    """λ of the late blocks, and how the loop came to it."""

    lam: Tensor  # (T M')
    ending: LoopResult


class ArithmeticRun:
    """One run: its pictures, its clock, and the steps that it has told."""

    def __init__(
        self, scene: ArithmeticContext, config: ArithmeticConfig, *, seed: int, stop: StopFlag
    ) -> None:
        self.scene, self.config, self.seed, self.stop = scene, config, seed, stop
        self.story = Progress()
        self.whole = WholeTower(scene)
        self.shown, self.held = split_held_out(scene, share=config.held_out, seed=seed)

    def marks(self, table: Tensor) -> tuple[TaskScore, ...]:
        """What the whole tower at λ (T M) gets right of what is held out, task by task."""
        return self.held.marks(self.whole.logits(table, self.held.squares))

    def mark(self, table: Tensor, task: int) -> TaskScore:
        """The same of one task alone, whose pictures alone pass the tower."""
        own = self.held.of(task)
        return own.marks(self.whole.logits(table, own.squares))[task]

    def lesson(self, *, start: Tensor) -> Generator[Step, None, ArithmeticTraining]:
        """The late part above an early one at `start` (T M), and the pictures as far as the cut."""
        late = LateTower(self.scene, share=self.config.share, start=start)
        draw, count = runtime.generator(self.seed), self.config.views
        kept = []
        for index in range(count):
            yield self.story.mark("look", index, count, share=SEARCHING)
            squares = self.shown.squares
            kept.append(late.activations(VIEW(squares, draw) if index else squares.float() / 255))
        return ArithmeticTraining(
            self, late, torch.stack(kept), late.activations(self.held.squares.float() / 255)
        )


class ArithmeticTraining:
    """What is learned from: activations at the cut, of the pictures shown (V N …) and of those held out."""

    def __init__(self, course: ArithmeticRun, late: LateTower, views: Tensor, held: Tensor) -> None:
        self._course, self._late, self._views, self._held = course, late, views, held
        self._subject = late.subject()

    def learn(
        self, objective: Objective, *, choose: Choose | None, labelled: bool = True
    ) -> Generator[Step, None, LearnedCoefficients]:
        """Learn λ of the late part from the start on, and keep the best by `choose`, or the last.

        An objective that is not `labelled` is told the task of each picture, and no more.
        """
        course, config = self._course, self._course.config
        shown = course.shown if labelled else course.shown.unlabelled()
        steps = optimise(
            self._subject,
            objective,
            TaskSampler(self._views, shown.labels, shown.tasks, size=config.batch),
            config=config.loop(keep="last" if choose is None else "best"),
            seeds=(course.seed,),
            score=None if choose is None else lambda forward: (choose(self._marks(forward)),),
            stop=course.stop,
        )
        ending = yield from course.story.follow(steps, since=SEARCHING)
        return LearnedCoefficients(ending.values[LAM][0], ending)

    @torch.no_grad()
    def marks(self, lam: Tensor) -> tuple[TaskScore, ...]:
        """What the tower at λ (T M') of the late blocks gets right of what is held out."""
        return self._marks(self._subject.at({LAM: lam[None]}))

    def table(self, lam: Tensor) -> Tensor:
        """λ over the whole tower (T M)."""
        return self._late.table(lam)

    def _marks(self, forward: Forward) -> tuple[TaskScore, ...]:
        logits = [forward.logits_fn(0)(part) for part in torch.split(self._held, CHUNK)]
        return self._course.held.marks(torch.cat(logits))


class TaskSampler:
    """Batches with as many pictures of each task; within one, all have their turn before any has a second.

    Every task weighs the same, and so does every class within a task, however many pictures it has.
    """

    def __init__(self, views: Tensor, labels: Tensor, tasks: Tensor, *, size: int) -> None:
        self._views, self._labels = views, labels
        self._rows = [(tasks == number).nonzero().squeeze(1).cpu() for number in range(int(tasks.max()) + 1)]
        self._each = max(1, size // len(self._rows))
        self._waiting = [torch.empty(0, dtype=torch.long) for _ in self._rows]
        self._weights = 1.0 / labels.bincount()[labels]  # (N)

    def __call__(self, request: BatchRequest) -> Batch:
        """The batch of a step."""
        turns = [self._turn(number, request.generator) for number in range(len(self._rows))]
        weights = [self._weights[turn] / self._weights[turn].sum() for turn in turns]
        chosen = torch.cat(turns).to(self._labels.device)
        view = torch.randint(len(self._views), (len(chosen),), generator=request.generator)
        images = self._views[view.to(chosen.device), chosen]
        return Batch(images, labels=self._labels[chosen], weights=torch.cat(weights))

    def _turn(self, number: int, generator: torch.Generator) -> Tensor:
        rows, waiting = self._rows[number], self._waiting[number]
        while len(waiting) < self._each:
            waiting = torch.cat([waiting, rows[torch.randperm(len(rows), generator=generator)]])
        chosen, self._waiting[number] = waiting[: self._each], waiting[self._each :]
        return chosen
