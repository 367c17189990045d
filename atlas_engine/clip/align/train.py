"""Join the image tower to the text tower. Knows nothing of folders or flags.

The teacher is EfficientNet-Lite0's classifier over ImageNet's thousand classes; a known label y is mixed in.
The student's z is TinyViT's projected feature, and t_c the fixed embedding of concept c:

    target = (1 − a)·softmax(teacher / T) + a·onehot(y)          a = 0 where nobody has labelled the image
    loss   = cross-entropy of softmax(z·t_c / tau) against target

Both see the same crop; the student's may be restyled (batches.py). First the projection learns alone, then
the whole tower; BatchNorm statistics stay frozen throughout. The state is saved now and then: a killed run
goes on where it was, and gives the same weights as one that was never stopped.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.clip import bundled
from atlas_engine.clip.align import batches, towers
from atlas_engine.clip.align.lesson import (
    UNKNOWN,
    Lesson,
    concept_embeddings,
    read_concepts,
    without_shared_direction,
)
from atlas_engine.config import Settings, setting
from atlas_engine.files import replacing

__all__ = ["AlignSettings", "AlignStep", "align", "student", "teacher_target", "write"]

TEACHER_SIZE = 160
HALF = (0.5, 0.5, 0.5)  # the mean and deviation that EfficientNet-Lite0 was trained with


@dataclass(frozen=True, kw_only=True)
class AlignSettings(Settings):
    """How the bundled model is trained."""

    steps: int = setting(500, help="optimiser steps", low=1)
    head_steps: int = setting(50, help="of these, steps of the projection alone", low=0)
    batch: int = setting(64, help="images a step", low=1)
    lr_head: float = setting(2e-3, help="learning rate of the projection", low=0)
    lr_trunk: float = setting(3e-4, help="learning rate of the tower", low=0)
    weight_decay: float = setting(0.05, help="pull of weights to zero", low=0)
    label_share: float = setting(0.5, help="a: share of a known label in the target", low=0, high=1)
    temperature: float = setting(1.0, help="T: softness of the teacher", low=0.1)
    tau: float = setting(0.07, help="softness of the student", low=0.01)
    finish_images: int = setting(
        20_000, help="images whose features the projection learns from at last", low=1
    )
    finish_rounds: int = setting(12, help="rounds over those features", low=0)
    save_every: int = setting(50, help="steps between saved states", low=1)
    seed: int = setting(0, help="seed of order, crops and styles", low=0)


@dataclass(frozen=True)
class AlignStep:
    """One step done: its loss, and the share of images whose likeliest concept is the target's."""

    index: int
    of: int
    loss: float
    agreement: float
    seconds: float


def align(lesson: Lesson, trunk: nn.Module, work: Path, settings: AlignSettings) -> Iterator[AlignStep]:
    """Train from the weights of `trunk`, or go on from the state in `work`; the result is `work/model.pt`."""
    runtime.keep_memory()
    clip, words = student(settings.seed)
    clip.visual.trunk.load_state_dict(trunk.state_dict())
    clip.logit_scale.data.fill_(math.log(1 / settings.tau))
    teacher = towers.lite0()
    optimiser = _optimiser(clip.visual, settings)
    first = _restore(work, clip.visual, optimiser)
    for index in range(first, settings.steps):
        start = time.perf_counter()
        _schedule(optimiser, index, settings)
        clip.visual.trunk.requires_grad_(index >= settings.head_steps)
        loss, agreement = _step(clip, teacher, words, lesson, index=index, settings=settings)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        done = AlignStep(index + 1, settings.steps, loss, agreement, time.perf_counter() - start)
        _log(work, done)
        if done.index % settings.save_every == 0 or done.index == settings.steps:
            _save(work, clip.visual, optimiser, done.index)
        yield done
    write(work / "model.pt", clip.state_dict())


def student(seed: int) -> tuple[Any, Tensor]:
    """The untrained CLIP, its text projection without the shared direction, and its words (1000 D)."""
    readings = _readings()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)  # of the projection's first weights; whoever else draws is left alone
        clip = bundled.build().eval()
        clip.text.proj.weight.copy_(without_shared_direction(readings))
        return clip, concept_embeddings(readings, clip.text.proj.weight)


@functools.cache
def _readings() -> Tensor:
    """What the text tower makes of the concepts before any projection: always the same, and slow."""
    clip = bundled.build().eval()
    clip.text.proj = nn.Identity()
    with torch.no_grad():
        return read_concepts(bundled.text_encoder(clip, torch.device("cpu")))


def _step(
    clip: Any,  # noqa: ANN401 - open_clip has no types
    teacher: nn.Module,
    words: Tensor,
    lesson: Lesson,
    *,
    index: int,
    settings: AlignSettings,
) -> tuple[float, float]:
    generator = runtime.generator(settings.seed * 1_000_003 + index)
    chosen = torch.randint(len(lesson.pixels), (settings.batch,), generator=generator)
    crops, styled = batches.augment(lesson.pixels[chosen], generator)
    target = teacher_target(teacher, crops, lesson.labels[chosen], settings)
    features = clip.visual(batches.normalise(styled, bundled.MEAN, bundled.STD))
    logits = F.normalize(features, dim=-1) @ words.T / settings.tau  # (B D) @ (D 1000) -> (B 1000)
    loss = F.cross_entropy(logits, target)
    loss.backward()  # type: ignore[no-untyped-call]
    return float(loss.detach()), float((logits.argmax(1) == target.argmax(1)).float().mean())


@torch.no_grad()
def teacher_target(teacher: nn.Module, crops: Tensor, labels: Tensor, settings: AlignSettings) -> Tensor:
    """The target (B 1000): the teacher's guess, with the label mixed in where there is one."""
    large = F.interpolate(crops, (TEACHER_SIZE, TEACHER_SIZE), mode="bilinear")
    logits: Tensor = teacher(batches.normalise(large, HALF, HALF))
    target = (logits / settings.temperature).softmax(dim=1)
    known = (labels != UNKNOWN).nonzero().flatten()
    target[known] *= 1 - settings.label_share
    target[known, labels[known]] += settings.label_share
    return target


def _optimiser(visual: Any, settings: AlignSettings) -> torch.optim.AdamW:  # noqa: ANN401
    groups = [
        {"params": list(visual.head.parameters()), "peak": settings.lr_head},
        {"params": list(visual.trunk.parameters()), "peak": settings.lr_trunk},
    ]
    return torch.optim.AdamW(groups, lr=0.0, weight_decay=settings.weight_decay)


def _schedule(optimiser: torch.optim.AdamW, index: int, settings: AlignSettings) -> None:
    """Cosine to zero over all steps; the tower warms up over twenty steps when it starts to learn."""
    cosine = 0.5 * (1 + math.cos(math.pi * index / settings.steps))
    warm = min(1.0, max(0, index - settings.head_steps + 1) / 20)
    head, trunk = optimiser.param_groups
    head["lr"], trunk["lr"] = head["peak"] * cosine, trunk["peak"] * cosine * warm


def _save(work: Path, visual: nn.Module, optimiser: torch.optim.AdamW, index: int) -> None:
    state = {"visual": visual.state_dict(), "optimiser": optimiser.state_dict(), "index": index}
    write(work / "state.pt", state)


def _restore(work: Path, visual: nn.Module, optimiser: torch.optim.AdamW) -> int:
    path = work / "state.pt"
    if not path.is_file():
        return 0
    state = torch.load(path, weights_only=True)
    visual.load_state_dict(state["visual"])
    optimiser.load_state_dict(state["optimiser"])
    return int(state["index"])


def write(path: Path, state: dict[str, Any]) -> None:
    """Save so that a reader finds the old file or the whole new one."""
    with replacing(path) as part:
        torch.save(state, part)


def _log(work: Path, step: AlignStep) -> None:
    with (work / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(step.__dict__) + "\n")
