"""Fine-tune an image tower against a frozen head, and keep the difference.

    logits = logit_scale · normalise(features) @ headᵀ,     loss = cross-entropy            # (B D) @ (D C)

    task = TrainingTask(head=head, logit_scale=100.0, train=train, val=val, view=view)
    for step in fine_tune(model.visual, task, settings=FineTuneSettings(steps=120)): ...

AdamW with warm-up and a cosine schedule, the gradient clipped; weight decay pulls the *difference* to zero,
which keeps a task vector small. What is random in step i follows from the seed and i alone, and the state is
saved every few steps: a killed run resumes where it was, and ends with the same bytes as one that was never
stopped.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.bank.resume import FineTuneState, StateFile, training_identity
from atlas_engine.bank.tunable import TunableTower, make_tunable
from atlas_engine.bank.vector import LINEAR, LORA, STANDARD, VECTOR_KINDS
from atlas_engine.config import Settings, setting
from atlas_engine.errors import BankError

__all__ = [
    "FineTuneSettings",
    "FineTuneStep",
    "FineTuned",
    "LabelledPixels",
    "TrainingTask",
    "View",
    "fine_tune",
]

CHUNK = 64  # images at once where no gradient is taken

LEARNING_RATES = {STANDARD: 3e-4, LORA: 2e-3, LINEAR: 3e-4}

Features = Callable[[Tensor], Tensor]
"""Images (B 3 H W) to features (B D): a tower, or `TunableTower.features`."""

View = Callable[[Tensor, torch.Generator | None], Tensor]
"""uint8 pixels (B 3 S S) to the tower's input: a random view with a generator, the plain one without."""


@dataclass(frozen=True, kw_only=True)
class FineTuneSettings(Settings):
    """How a tower is fine-tuned."""

    kind: str = setting(STANDARD, help="what is learned", choices=VECTOR_KINDS)
    steps: int = setting(160, help="optimiser steps", low=1)
    batch: int = setting(32, help="images a step", low=1)
    lr: float | None = setting(None, help="peak learning rate; none is the kind's own", low=0)
    warm_up: int = setting(10, help="steps until the peak", low=0)
    weight_decay: float = setting(0.1, help="pull of the difference to zero", low=0)
    clip_norm: float = setting(1.0, help="longest gradient; longer ones are cut to it", low=1e-6)
    label_smoothing: float = setting(0.0, help="share of a label given to all classes", low=0, high=0.5)
    rank: int = setting(16, help="rank of lora's factors", low=1)
    measure_every: int = setting(40, help="steps between measurements on the validation split", low=1)
    patience: int = setting(3, help="measurements without a better one before it stops", low=1)
    save_every: int = setting(20, help="steps between saved states", low=1)
    seed: int = setting(0, help="seed of split, order and crops", low=0, high=2**31 - 1)


@dataclass(frozen=True, eq=False)
class LabelledPixels:
    """N labelled images in memory, cut to the tower's size."""

    pixels: Tensor  # (N 3 S S) uint8
    labels: Tensor  # (N)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingTask:
    """What is learned: labelled images, the frozen head of their classes, and how an image becomes input."""

    head: Tensor  # (C D), rows of length 1
    logit_scale: float
    train: LabelledPixels
    val: LabelledPixels | None
    view: View

    @torch.no_grad()
    def unit_features(self, features: Features, pixels: Tensor) -> Tensor:
        """Features of plain views, normalised, (N D) in float32."""
        starts = range(0, len(pixels), CHUNK)
        chunks = [features(self.view(pixels[at : at + CHUNK], None)).float() for at in starts]
        return F.normalize(torch.cat(chunks), dim=-1)

    def measure(self, features: Features, examples: LabelledPixels) -> tuple[float, float]:
        """Accuracy and mean cross-entropy on the plain views of `examples`."""
        units = self.unit_features(features, examples.pixels)
        logits = self.logit_scale * units @ self.head.T  # (N D) @ (D C)
        labels = examples.labels.to(logits.device)
        accuracy = (logits.argmax(dim=1) == labels).float().mean()
        return float(accuracy), float(F.cross_entropy(logits, labels))


@dataclass(frozen=True)
class FineTuneStep:
    """One step done, `index` of `of`; `val_accuracy` at the steps that were measured."""

    index: int
    of: int
    loss: float
    seconds_left: float
    val_accuracy: float | None = None


@dataclass(frozen=True, eq=False)
class FineTuned:
    """The difference that did best on the validation split (without one: the last), and at which step."""

    difference: dict[str, Tensor]
    kind: str
    best_step: int
    steps: int
    val_accuracy: float | None


def fine_tune(
    visual: nn.Module, task: TrainingTask, *, settings: FineTuneSettings, state: Path | None = None
) -> Generator[FineTuneStep, None, FineTuned]:
    """Steps as they are done, then what was learned. With `state`, a run saved there is resumed.

    A state of another base, head, data or settings is refused by a BankError that says what differs.
    """
    runtime.keep_memory()
    tunable = make_tunable(visual, settings.kind, rank=settings.rank, seed=settings.seed)
    optimiser = torch.optim.AdamW(list(tunable.leaves.values()), lr=0.0, weight_decay=settings.weight_decay)
    file = StateFile(state, _identity(tunable, task, settings))
    now = file.restore(tunable, optimiser)
    began, first = time.perf_counter(), now.index

    # early stopping: end after `patience` measurements without a better one
    while now.index < settings.steps and now.misses < settings.patience:
        loss = _step(tunable, optimiser, task, index=now.index, settings=settings)
        now = dataclasses.replace(now, index=now.index + 1)

        # measure on the validation split, and remember the best leaves
        accuracy = None
        if task.val is not None and _is_due(now.index, settings.measure_every, settings.steps):
            accuracy, val_loss = task.measure(tunable.features, task.val)
            now = now.with_measurement(accuracy, val_loss, tunable.state())

        if _is_due(now.index, settings.save_every, settings.steps):
            file.save(tunable, optimiser, now)
        seconds_per_step = (time.perf_counter() - began) / (now.index - first)
        seconds_left = seconds_per_step * (settings.steps - now.index)
        yield FineTuneStep(now.index, settings.steps, loss, seconds_left, accuracy)
    return _result(tunable, now, settings.kind)


def _step(
    tunable: TunableTower,
    optimiser: torch.optim.AdamW,
    task: TrainingTask,
    *,
    index: int,
    settings: FineTuneSettings,
) -> float:
    """One optimiser step; its loss."""
    chosen = _batch_indices(len(task.train), index, settings)
    draw = runtime.generator(_derive_seed(settings.seed, index))
    units = F.normalize(tunable.features(task.view(task.train.pixels[chosen], draw)).float(), dim=-1)
    loss = F.cross_entropy(
        task.logit_scale * units @ task.head.T,  # (B D) @ (D C) -> (B C)
        task.train.labels[chosen].to(task.head.device),
        label_smoothing=settings.label_smoothing,
    )
    value = float(loss.detach())
    if not math.isfinite(value):
        raise BankError(f"the training diverged: its loss at step {index + 1} is {value}. Lower lr.")
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(tunable.leaves.values(), settings.clip_norm)
    optimiser.param_groups[0]["lr"] = _learning_rate(index, settings)
    optimiser.step()
    return value


def _batch_indices(count: int, index: int, settings: FineTuneSettings) -> Tensor:
    """The images of a step, (B): every image once before any comes again, in a new order every epoch."""
    places = range(index * settings.batch, (index + 1) * settings.batch)
    orders = {
        epoch: torch.randperm(count, generator=runtime.generator(_derive_seed(settings.seed, -1 - epoch)))
        for epoch in range(places[0] // count, places[-1] // count + 1)
    }
    return torch.stack([orders[place // count][place % count] for place in places])


def _derive_seed(seed: int, index: int) -> int:
    """A seed for step `index`; below zero, for the order of an epoch."""
    return seed * 2**31 + (2 * index if index >= 0 else -2 * index - 1)


def _learning_rate(index: int, settings: FineTuneSettings) -> float:
    """Linear warm-up to the peak, then half a cosine that reaches zero after the last step."""
    peak = LEARNING_RATES[settings.kind] if settings.lr is None else settings.lr
    warm_up = min(settings.warm_up, settings.steps - 1)
    if index < warm_up:
        return peak * (index + 1) / (warm_up + 1)
    return peak * 0.5 * (1 + math.cos(math.pi * (index - warm_up) / (settings.steps - warm_up)))


def _is_due(index: int, every: int, last: int) -> bool:
    return index % every == 0 or index == last


def _identity(tunable: TunableTower, task: TrainingTask, settings: FineTuneSettings) -> dict[str, object]:
    splits = [split for split in (task.train, task.val) if split is not None]
    data = [tensor for split in splits for tensor in (split.pixels, split.labels)]
    return training_identity(tunable.theta0, head=task.head, data=data, settings=settings)


def _result(tunable: TunableTower, state: FineTuneState, kind: str) -> FineTuned:
    """What the best leaves come to, as a difference of every block."""
    if state.best is not None:
        tunable.load_state(state.best)
    learned = {name: delta.detach().clone() for name, delta in tunable.difference().items()}
    difference = {name: learned.get(name, torch.zeros_like(base)) for name, base in tunable.theta0.items()}
    best_step = state.index if state.best is None else state.best_step
    return FineTuned(difference, kind, best_step, state.index, state.best_accuracy)
