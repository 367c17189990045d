"""Suite `few-shot`: what adapting costs a person who waits, in plain training passes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from atlas_engine.engine import open as open_atlas
from atlas_engine.runtime import frozen_copy
from studies.speed.measure import compare
from studies.speed.predict import CLASSES, noise_images
from studies.speed.report import Bar, Report

__all__ = ["few_shot"]

SHOTS = 4
BATCH, PASSES = 16, 96
ALL_PASSES, FIRST_PASSES = 1500, 300


def few_shot(*, repeat: int = 3) -> Report:
    """Time `auto` to its verdict and to its first answer, in plain passes through the tower."""
    with open_atlas(cache=False) as engine:
        engine.bank  # noqa: B018 - read once, when a session opens
        labels = tuple(label for label in range(len(CLASSES)) for _ in range(SHOTS))
        support = Support(tuple(noise_images(len(labels))), labels, CLASSES)
        engine.head(CLASSES)
        candidates: dict[str, Callable[[], Tensor]] = {
            "plain": lambda: _plain_passes(engine),
            "preview": lambda: _first_preview(engine, support),
            "auto": lambda: engine.few_shot(support).result().coefficients.values,
        }
        found = compare(
            candidates, check=lambda values: bool(values.isfinite().all()), warmup=1, repeat=repeat
        )
    return Report(
        name="few-shot",
        what=f"engine.few_shot of {len(CLASSES)} classes × {SHOTS} images, bundled model and bank",
        ceiling="none: passes through the whole tower, forward and backward, are the unit",
        bars=(
            Bar("auto, in plain passes", PASSES * found.ratio("auto", "plain"), "<=", ALL_PASSES, "passes"),
            Bar(
                "first answer, in plain passes",
                PASSES * found.ratio("preview", "plain"),
                "<=",
                FIRST_PASSES,
                "passes",
            ),
        ),
        notes={name: str(timing) for name, timing in found.timings.items()}
        | {"plain": f"{found.timings['plain']}, {PASSES} images in batches of {BATCH}"},
    )


def _plain_passes(engine: Atlas) -> Tensor:
    """The gradient after `PASSES` images went forward and backward through the whole tower."""
    tower, size = frozen_copy(engine.backbone.visual), engine.backbone.preprocessing.size
    for parameter in tower.parameters():
        parameter.requires_grad_()
    images = torch.rand(BATCH, 3, size, size, generator=torch.Generator().manual_seed(0))
    for _ in range(PASSES // BATCH):
        torch.autograd.backward(tower(images).square().sum())
    grads = [parameter.grad.flatten() for parameter in tower.parameters() if parameter.grad is not None]
    return torch.cat(grads)


def _first_preview(engine: Atlas, support: Support) -> Tensor:
    """The head of the first preview; the run is cancelled there."""
    run = engine.few_shot(support)
    preview = next(step.preview for step in run if step.preview is not None)
    run.cancel()
    return torch.cat([tensor.float().flatten() for tensor in preview.head.values()])
