"""Measuring a tower at any λ, and training λ of its late blocks: what negation and addition share.

run = ArithmeticRun(context, config, seed=seed, stop=stop)
run.scores(table)                                        # of the held-out images at λ (T M)
training = yield from run.prepare_training(start=table)
loop = yield from training.learn(TaskCrossEntropy(context.class_counts), choose=choose)
training.table(loop.values[LAM][0])                      # λ over the whole tower
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.arithmetic.config import ArithmeticConfig
from atlas_engine.adapt.arithmetic.tasks import TaskScore, split_held_out
from atlas_engine.adapt.context import AdaptContext
from atlas_engine.adapt.guards import StopFlag
from atlas_engine.adapt.optimise import LoopResult, optimise
from atlas_engine.adapt.progress import Progress
from atlas_engine.adapt.samplers import TaskSampler
from atlas_engine.adapt.trainable import LAM, Forward, TrainableCoefficients
from atlas_engine.adapt.trainable_part import IMAGES_AT_ONCE, TrainablePart
from atlas_engine.bank.vector import LINEAR
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import cosine_logits, materialise
from atlas_engine.compose.linearised import make_encoder
from atlas_engine.data.augment import Augment
from atlas_engine.objectives.base import Objective
from atlas_engine.result import Step

__all__ = ["ENCODED", "SEARCHED", "ArithmeticRun", "ArithmeticTraining", "WholeTower"]

VIEW = Augment(smallest=0.7, flip=False, jitter=0.0)
"""A random view, never mirrored, because tasks are often signs, digits or letters."""

ENCODED, SEARCHED = 0.15, 0.4  # rough share of the work done after the phases encode and search

Choose = Callable[[tuple[TaskScore, ...]], float]
"""The held-out scores of all tasks to one number; higher is better."""


class WholeTower:
    """The whole image tower, to be measured at any λ (T M)."""

    def __init__(self, context: AdaptContext) -> None:
        self._context = context
        self._composer = Composer(dict(context.backbone.visual.named_parameters()), context.bank)
        self._encoder = make_encoder(context.backbone.visual, self._composer)

    def zeros(self) -> Float[Tensor, "T M"]:
        """The λ of zero-shot."""
        return self._composer.initial()

    def uniform(self, vectors: dict[str, float]) -> Float[Tensor, "T M"]:
        """λ with one number for all blocks of each named vector, and 0 for the other vectors."""
        table = self.zeros()
        for name, value in vectors.items():
            table[self._context.bank.tasks.index(name)] = value
        return table

    @torch.no_grad()
    def features(self, table: Float[Tensor, "T M"], pixels: UInt8[Tensor, "N 3 S S"]) -> Float[Tensor, "N D"]:
        """Features of length 1 at λ."""
        as_input, composition = self._context.backbone.as_input, self._encoder.at(table)
        parts = torch.split(pixels, IMAGES_AT_ONCE)
        return torch.cat([composition.features(as_input(part.float() / 255)) for part in parts])

    def logits(self, table: Float[Tensor, "T M"], pixels: UInt8[Tensor, "N 3 S S"]) -> Float[Tensor, "N C"]:
        """Logits at λ under the head of all tasks."""
        scale = self._context.backbone.logit_scale
        return cosine_logits(self.features(table, pixels), self._context.head, logit_scale=scale)


class ArithmeticRun:
    """One run: its context and settings, its progress, and its images to learn from and held out."""

    def __init__(self, context: AdaptContext, config: ArithmeticConfig, *, seed: int, stop: StopFlag) -> None:
        self.context, self.config, self.seed, self.stop = context, config, seed, stop
        self.progress = Progress()
        self.tower = WholeTower(context)
        self.learned, self.held_out = split_held_out(context, share=config.held_out, seed=seed)

    def scores(self, table: Float[Tensor, "T M"]) -> tuple[TaskScore, ...]:
        """The held-out score of each task by the whole tower at λ."""
        return self.held_out.scores(self.tower.logits(table, self.held_out.pixels))

    def score(self, table: Float[Tensor, "T M"], task: int) -> TaskScore:
        """The held-out score of one task, from its own images alone."""
        own = self.held_out.of(task)
        return own.scores(self.tower.logits(table, own.pixels))[task]

    def prepare_training(self, *, start: Float[Tensor, "T M"]) -> Generator[Step, None, ArithmeticTraining]:
        """A training of the late blocks from λ = `start`, with views of the images to learn from."""
        training = ArithmeticTraining(self, start=start)
        random, count = runtime.generator(self.seed), self.config.views
        for index in range(count):
            yield self.progress.phase("encode", index, count, share=SEARCHED)
            pixels = self.learned.pixels
            training.add_view(VIEW(pixels, random) if index else pixels.float() / 255)
        return training


class ArithmeticTraining:
    """Training of λ of the tower's late blocks, on activations behind an early part that stays at its λ."""

    def __init__(self, run: ArithmeticRun, *, start: Float[Tensor, "T M"]) -> None:
        context, share = run.context, run.config.share
        if context.bank.kind == LINEAR and bool(start.any()):
            share = 1.0  # the tangent has no early part to compute once: at its start, all blocks are trained
        self._run, self._start = run, start
        part = TrainablePart(context.backbone, context.bank, share=share)
        composer = part.composer()
        # the early part at its start: the base tower, or one with the start composed into it
        self._early = part
        if len(composer.blocks) < len(context.bank.blocks) and bool(start.any()):
            base = dict(context.backbone.visual.named_parameters())
            moved = materialise(context.backbone.visual, Composer(base, context.bank).compose(start))
            self._early = TrainablePart(replace(context.backbone, visual=moved), context.bank, share=share)
        # λ of the late blocks, from the start on
        self._columns = torch.tensor([context.bank.blocks.index(block) for block in composer.blocks])
        self._trainable = TrainableCoefficients(
            make_encoder(part.tower, composer),
            context.head,
            logit_scale=context.backbone.logit_scale,
            start=start[:, self._columns].clone()[None],
        )
        self._views: list[Tensor] = []
        self._held_out = self._early.activations(run.held_out.pixels.float() / 255)

    def add_view(self, images: Float[Tensor, "N 3 S S"]) -> None:
        """Add one more view of the images to learn from, in 0 … 1."""
        self._views.append(self._early.activations(images))

    def learn(
        self, objective: Objective, *, choose: Choose | None, labelled: bool = True
    ) -> Generator[Step, None, LoopResult]:
        """Train λ (1 T L) of the L late blocks; keep the best by `choose`, or without it the last.

        Without `labelled`, the objective knows the task of each image but not its class.
        """
        run, config = self._run, self._run.config
        images = run.learned if labelled else run.learned.without_labels()
        steps = optimise(
            self._trainable,
            objective,
            TaskSampler(torch.stack(self._views), images.labels, images.tasks, size=config.batch),
            config=config.loop(keep="last" if choose is None else "best"),
            seeds=(run.seed,),
            score=None if choose is None else lambda forward: (choose(self._forward_scores(forward)),),
            stop=run.stop,
        )
        return (yield from run.progress.track(steps, since=SEARCHED))

    @torch.no_grad()
    def scores(self, lam: Float[Tensor, "T L"]) -> tuple[TaskScore, ...]:
        """The held-out score of each task at λ of the late blocks."""
        return self._forward_scores(self._trainable.at({LAM: lam[None]}))

    def table(self, lam: Float[Tensor, "T L"]) -> Float[Tensor, "T M"]:
        """λ over the whole tower, from λ of the late blocks."""
        return self._start.index_copy(1, self._columns.to(lam.device), lam)

    def _forward_scores(self, forward: Forward) -> tuple[TaskScore, ...]:
        logits = [forward.logits_fn(0)(part) for part in torch.split(self._held_out, IMAGES_AT_ONCE)]
        return self._run.held_out.scores(torch.cat(logits))
