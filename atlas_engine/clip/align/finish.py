"""The projection's last lesson: many rounds over features that no longer change. Knows nothing of crops.

Once the tower stands still, its features are computed once and kept, and the projection can see each image
dozens of times for the price of one. Target and loss are those of train.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.clip import bundled
from atlas_engine.clip.align import batches, towers
from atlas_engine.clip.align.lesson import Lesson
from atlas_engine.clip.align.train import AlignSettings, student, teacher_target, write

__all__ = ["finish"]

CHUNK = 64
BATCH = 256


def finish(lesson: Lesson, work: Path, settings: AlignSettings) -> Iterator[tuple[str, int, int]]:
    """Yield (what, done, of) while `work/model.pt` becomes `work/finished.pt`."""
    runtime.keep_memory()
    clip, words = student(settings.seed)
    clip.load_state_dict(torch.load(work / "model.pt", weights_only=True))
    order = torch.randperm(len(lesson.pixels), generator=runtime.generator(settings.seed))
    chosen = order[: settings.finish_images]
    features: list[Tensor] = []
    targets: list[Tensor] = []
    teacher = towers.lite0()
    for some in torch.split(chosen, CHUNK):
        images = lesson.pixels[some].float() / 255
        with torch.no_grad():
            features.append(clip.visual.trunk(batches.normalise(images, bundled.MEAN, bundled.STD)))
            targets.append(teacher_target(teacher, images, lesson.labels[some], settings))
        yield "keeping features", len(features) * CHUNK, len(chosen)
    yield from _teach(clip.visual.head, torch.cat(features), torch.cat(targets), words, settings=settings)
    write(work / "finished.pt", clip.state_dict())


def _teach(
    head: nn.Module, features: Tensor, targets: Tensor, words: Tensor, *, settings: AlignSettings
) -> Iterator[tuple[str, int, int]]:
    optimiser = torch.optim.AdamW(head.parameters(), lr=settings.lr_head, weight_decay=settings.weight_decay)
    rounds = settings.finish_rounds
    for index in range(rounds):
        order = torch.randperm(len(features), generator=runtime.generator(settings.seed + index))
        for place, some in enumerate(torch.split(order, BATCH)):
            share = (index + place * BATCH / len(features)) / rounds
            for group in optimiser.param_groups:
                group["lr"] = settings.lr_head * 0.5 * (1 + math.cos(math.pi * share))
            unit: Any = F.normalize(head(features[some]), dim=-1)
            loss = F.cross_entropy(unit @ words.T / settings.tau, targets[some])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        yield f"loss {float(loss.detach()):.3f}", index + 1, rounds
