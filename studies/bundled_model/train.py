"""Train the bundled model: the image tower and its head learn together.

EfficientNet-Lite0 is its own teacher: at 160 px it says of each crop which of a thousand concepts it shows,
and the student sees the same crop at 128 px, now and then redrawn (batches.py). A known label is mixed in:

    target = (1 − a)·softmax(teacher) + a·onehot(y)             a = 0 where nobody has labelled the image

The student starts as the teacher, and its head as the mixture of the concepts' embeddings t_c that the
teacher's classifier asks for. Three cross-entropies add up, r being what the head reads in it (concept.py):

    words   softmax(r·t_c / tau) against the target
    names   softmax(r·n_k / tau) against the name of a named image, among all names
    keep    softmax(classifier) against the target: the thousand concepts stay apart in the features, also
            those that no image here shows

BatchNorm statistics stay frozen. The state is saved now and then: a killed run goes on where it was, and
gives the same weights as one that was never stopped.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.config import Settings, setting
from atlas_engine.files import atomic_write
from studies.bundled_model import batches
from studies.bundled_model.batches import AlignmentData, mix_labels
from studies.bundled_model.student import HALF, Student, features_of
from studies.bundled_model.towers import lite0
from studies.bundled_model.words import WordEmbeddings

__all__ = ["TEACHER_SIZE", "AlignSettings", "AlignStep", "align", "save_state"]

TEACHER_SIZE = 160
WARM_STEPS = 20
PLAIN_SHARE = 0.6  # of named images, which are mostly drawings already


@dataclass(frozen=True, kw_only=True)
class AlignSettings(Settings):
    """How the bundled model is trained."""

    steps: int = setting(600, help="optimiser steps", low=1)
    batch: int = setting(32, help="images a step", low=1)
    named_batch: int = setting(28, help="named images a step", low=1)
    lr: float = setting(2e-4, help="learning rate of the tower", low=0)
    weight_decay: float = setting(0.02, help="pull of the tower's weights to zero", low=0)
    label_share: float = setting(0.5, help="a: share of a known label in the target", low=0, high=1)
    tau: float = setting(0.07, help="softness of the student", low=0.01)
    names_weight: float = setting(0.5, help="weight of the names in the loss", low=0)
    keep_weight: float = setting(1.0, help="weight of the kept concepts in the loss", low=0)
    save_every: int = setting(50, help="steps between saved states", low=1)
    seed: int = setting(0, help="seed of order, crops and styles", low=0)


@dataclass(frozen=True)
class AlignStep:
    """One step done: its three losses, and how long it took."""

    index: int
    of: int
    words: float
    names: float
    keep: float
    seconds: float


def align(
    data: AlignmentData, words: WordEmbeddings, work: Path, settings: AlignSettings
) -> Iterator[AlignStep]:
    """Train, or go on from the state in `work`; the result is `work/trained.pt`."""
    runtime.keep_memory()
    teacher = lite0().requires_grad_(False)
    student = Student.start(words, data.pixels)
    optimiser = torch.optim.AdamW(
        student.parameter_groups(settings.lr), lr=0.0, weight_decay=settings.weight_decay
    )
    first = _restore(work, student, optimiser)
    for index in range(first, settings.steps):
        start = time.perf_counter()
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * _lr_scale(index, settings.steps)
        losses = _losses(student, teacher, data, words, index=index, settings=settings)
        (losses[0] + settings.names_weight * losses[1] + settings.keep_weight * losses[2]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        words_loss, names_loss, keep_loss = (float(loss.detach()) for loss in losses)
        seconds = time.perf_counter() - start
        done = AlignStep(index + 1, settings.steps, words_loss, names_loss, keep_loss, seconds)
        _log(work, done)
        if done.index % settings.save_every == 0 or done.index == settings.steps:
            _save(work, student, optimiser, done.index)
        yield done
    save_state(work / "trained.pt", student.state())


def _losses(
    student: Student,
    teacher: Any,  # noqa: ANN401 - timm has no types
    data: AlignmentData,
    words: WordEmbeddings,
    *,
    index: int,
    settings: AlignSettings,
) -> tuple[Tensor, Tensor, Tensor]:
    """The three cross-entropies of one step: words, names and keep."""
    generator = runtime.generator(settings.seed * 1_000_003 + index)
    # the teacher's target for plain crops, with known labels mixed in
    chosen = torch.randint(len(data.pixels), (settings.batch,), generator=generator)
    crops, styled = batches.augment(data.pixels[chosen], generator)
    with torch.no_grad():
        large = F.interpolate(crops, (TEACHER_SIZE, TEACHER_SIZE), mode="bicubic").clamp(0, 1)
        guess = teacher(batches.normalise(large, HALF, HALF)).softmax(dim=1)
    target = mix_labels(guess, data.labels[chosen], settings.label_share)
    # named images, mostly as they are
    named = torch.multinomial(data.weights, settings.named_batch, generator=generator)
    plain, drawn = batches.augment(data.named[named], generator)
    keep_plain = torch.rand(settings.named_batch, 1, 1, 1, generator=generator) < PLAIN_SHARE
    # the student sees restyled crops and named images in one pass
    features = features_of(student.tower, torch.cat([styled, torch.where(keep_plain, plain, drawn)]))
    read, count = student.read(features) / settings.tau, settings.batch
    return (
        F.cross_entropy(read[:count] @ words.concepts.T, target),
        F.cross_entropy(read[count:] @ words.names.T, data.names[named]),
        F.cross_entropy(student.tower.classifier(features[:count]), target),
    )


def _lr_scale(index: int, steps: int) -> float:
    """Cosine to zero over all steps, after a short warm-up."""
    return 0.5 * (1 + math.cos(math.pi * index / steps)) * min(1.0, (index + 1) / WARM_STEPS)


def _save(work: Path, student: Student, optimiser: torch.optim.AdamW, index: int) -> None:
    state = {"student": student.state(), "optimiser": optimiser.state_dict(), "index": index}
    save_state(work / "state.pt", state)


def _restore(work: Path, student: Student, optimiser: torch.optim.AdamW) -> int:
    path = work / "state.pt"
    if not path.is_file():
        return 0
    state = torch.load(path, weights_only=True)
    student.restore(state["student"])
    optimiser.load_state_dict(state["optimiser"])
    return int(state["index"])


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Save so that a reader finds the old file or the whole new one."""
    with atomic_write(path) as part:
        torch.save(state, part)


def _log(work: Path, step: AlignStep) -> None:
    with (work / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(step.__dict__) + "\n")
