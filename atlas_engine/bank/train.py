"""Fine-tune an image tower against a frozen head, and keep the difference. Knows nothing of folders or text.

    logits = logit_scale · normalise(features) @ headᵀ,     loss = cross-entropy            # (B D) @ (D C)

    lesson = Lesson(head=head, logit_scale=100.0, train=train, val=val, view=view)
    for step in tune(model.visual, lesson, settings=TuneSettings(steps=120)): ...

AdamW with warm-up and cosine, the gradient clipped; decay pulls the *difference* to zero, which keeps a task
vector small. What is random in step i follows from the seed and i alone, and the state is saved now and then:
a killed run goes on where it was, and ends with the same bytes as one that was never stopped.
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
from atlas_engine.bank.resume import FineTuneState, StateFile, identity
from atlas_engine.bank.tunable import VECTOR_KINDS, TunableTower, make_tunable
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

LEARNING_RATES = {"standard": 3e-4, "lora": 2e-3, "linear": 3e-4}

Features = Callable[[Tensor], Tensor]
"""Images (B 3 H W) to features (B D): a tower, or a learner's method."""

View = Callable[[Tensor, torch.Generator | None], Tensor]
"""uint8 pixels (B 3 S S) to the tower's input: a random view by the generator, the plain one without."""


@dataclass(frozen=True, kw_only=True)
class FineTuneSettings(Settings):
    """How a tower is fine-tuned."""

    kind: str = setting("standard", help="what is learned", choices=VECTOR_KINDS)
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
    """Labelled squares in memory."""

    pixels: Tensor  # (N 3 S S) uint8
    labels: Tensor  # (N)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingTask:
    """What is learned: pictures and their classes, the head that names these, and how a picture is shown."""

    head: Tensor  # (C D), rows of length 1
    logit_scale: float
    train: LabelledPixels
    val: LabelledPixels | None
    view: View

    @torch.no_grad()
    def units(self, features: Features, pixels: Tensor) -> Tensor:
        """Features of plain views, of length 1, (N D) in float32."""
        starts = range(0, len(pixels), CHUNK)
        chunks = [features(self.view(pixels[at : at + CHUNK], None)).float() for at in starts]
        return F.normalize(torch.cat(chunks), dim=-1)

    def measure(self, features: Features, examples: LabelledPixels) -> tuple[float, float]:
        """Accuracy and mean cross-entropy on the plain views of `examples`."""
        logits = self.logit_scale * self.units(features, examples.pixels) @ self.head.T  # (N D) @ (D C)
        labels = examples.labels.to(logits.device)
        right = (logits.argmax(dim=1) == labels).float().mean()
        return float(right), float(F.cross_entropy(logits, labels))


@dataclass(frozen=True)
class FineTuneStep:
    """One step done; `val_accuracy` at the steps that were measured."""

    index: int
    of: int
    loss: float
    seconds_left: float
    val_accuracy: float | None = None


@dataclass(frozen=True, eq=False)
class FineTuned:
    """The difference that did best on the validation split (without one: the last), and when it was."""

    difference: dict[str, Tensor]
    kind: str
    best_step: int
    steps: int
    val_accuracy: float | None


def fine_tune(
    visual: nn.Module, lesson: TrainingTask, *, settings: FineTuneSettings, state: Path | None = None
) -> Generator[FineTuneStep, None, FineTuned]:
    """Steps as they are done, then what was learned. With `state`, a run saved there is taken up again.

    A state of another base, head, data or settings is refused by a BankError that says what differs.
    """
    runtime.keep_memory()
    model = make_tunable(visual, settings.kind, rank=settings.rank, seed=settings.seed)
    optimiser = torch.optim.AdamW(list(model.leaves.values()), lr=0.0, weight_decay=settings.weight_decay)
    file = StateFile(state, _identity(model, lesson, settings))
    done = file.restore(model, optimiser)
    began, first = time.perf_counter(), done.index
    while done.index < settings.steps and done.misses < settings.patience:
        loss = _step(model, optimiser, lesson, index=done.index, settings=settings)
        done = dataclasses.replace(done, index=done.index + 1)
        accuracy = None
        if lesson.val is not None and _is_due(done.index, settings.measure_every, settings.steps):
            accuracy, val_loss = lesson.measure(model.features, lesson.val)
            done = done.measured(accuracy, val_loss, model.state())
        if _is_due(done.index, settings.save_every, settings.steps):
            file.save(model, optimiser, done)
        each = (time.perf_counter() - began) / (done.index - first)
        left = settings.steps - done.index
        yield FineTuneStep(done.index, settings.steps, loss, each * left, accuracy)
    return _result(model, done, settings.kind)


def _step(
    model: TunableTower,
    optimiser: torch.optim.AdamW,
    lesson: TrainingTask,
    *,
    index: int,
    settings: FineTuneSettings,
) -> float:
    chosen = _chosen(len(lesson.train), index, settings)
    images = lesson.view(lesson.train.pixels[chosen], runtime.generator(_mixed(settings.seed, index)))
    units = F.normalize(model.features(images).float(), dim=-1)
    loss = F.cross_entropy(
        lesson.logit_scale * units @ lesson.head.T,  # (B D) @ (D C) -> (B C)
        lesson.train.labels[chosen].to(lesson.head.device),
        label_smoothing=settings.label_smoothing,
    )
    value = float(loss.detach())
    if not math.isfinite(value):
        raise BankError(f"the training diverged: its loss at step {index + 1} is {value}. Lower lr.")
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.leaves.values(), settings.clip_norm)
    optimiser.param_groups[0]["lr"] = _rate(index, settings)
    optimiser.step()
    return value


def _chosen(count: int, index: int, settings: FineTuneSettings) -> Tensor:
    """The images of a step: every one once before any comes again, each time round in another order."""
    places = range(index * settings.batch, (index + 1) * settings.batch)
    rounds = {
        turn: torch.randperm(count, generator=runtime.generator(_mixed(settings.seed, -1 - turn)))
        for turn in range(places[0] // count, places[-1] // count + 1)
    }
    return torch.stack([rounds[place // count][place % count] for place in places])


def _mixed(seed: int, index: int) -> int:
    """A seed for step `index`; below zero, for the order of a round."""
    return seed * 2**31 + (2 * index if index >= 0 else -2 * index - 1)


def _rate(index: int, settings: FineTuneSettings) -> float:
    """Up to the peak in a line, then half a cosine that is zero after the last step."""
    peak = LEARNING_RATES[settings.kind] if settings.lr is None else settings.lr
    warm = min(settings.warm_up, settings.steps - 1)
    if index < warm:
        return peak * (index + 1) / (warm + 1)
    return peak * 0.5 * (1 + math.cos(math.pi * (index - warm) / (settings.steps - warm)))


def _is_due(index: int, every: int, last: int) -> bool:
    return index % every == 0 or index == last


def _identity(model: TunableTower, lesson: TrainingTask, settings: FineTuneSettings) -> dict[str, object]:
    sets = [part for part in (lesson.train, lesson.val) if part is not None]
    data = [tensor for part in sets for tensor in (part.pixels, part.labels)]
    return identity(model.theta0, head=lesson.head, data=data, settings=settings)


def _result(model: TunableTower, done: FineTuneState, kind: str) -> FineTuned:
    if done.best is not None:
        model.restore(done.best)
    learned = {name: delta.detach().clone() for name, delta in model.difference().items()}
    difference = {name: learned.get(name, torch.zeros_like(base)) for name, base in model.theta0.items()}
    best_step = done.index if done.best is None else done.best_step
    return FineTuned(difference, kind, best_step, done.index, done.best_accuracy)
