"""A small tower and images to fine-tune it on, in plain torch; run as a script, a training to be killed.

python -m tests.bank.training_tasks FOLDER [SAVES]     # hangs inside its SAVES-th save, until it is killed
"""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from atlas_engine.bank.tensor_file import write_tensors
from atlas_engine.bank.train import FineTuneSettings, LabelledPixels, TrainingTask, fine_tune
from atlas_engine.runtime import drain

SIDE, CLASSES = 16, 4
QUICK = FineTuneSettings(steps=12, batch=8, lr=1e-2, warm_up=2, measure_every=4, save_every=3, rank=4)


@functools.cache
def conv_tower() -> nn.Module:
    """Plain, depthwise and 1×1 convolutions with BatchNorm and ReLU6. Shared between tests: only read it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tower = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False),
            *(nn.BatchNorm2d(16), nn.ReLU6()),
            nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False),
            *(nn.BatchNorm2d(16), nn.ReLU6()),
            nn.Conv2d(16, 32, 1, bias=False),
            *(nn.BatchNorm2d(32), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            nn.Linear(32, 16),
        )
        for module in tower.modules():  # fresh BatchNorms have mean 0 and variance 1: give them a past
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 1.5)
    return tower.eval()


def examples(count: int, *, seed: int, side: int = SIDE) -> LabelledPixels:
    """Noisy images of four colours that differ little."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    colours = 128 + 80 * torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1]])
    noise = 30 * torch.randn(count, 3, side, side, generator=draw)
    pixels = colours[labels].view(-1, 3, 1, 1) + noise
    return LabelledPixels(pixels.clamp(0, 255).to(torch.uint8), labels)


def view(pixels: Tensor, generator: torch.Generator | None) -> Tensor:
    """Pixels around zero; with a generator, brighter or darker."""
    images = pixels.float() / 128 - 1
    if generator is None:
        return images
    return images + 0.2 * torch.randn(len(images), 1, 1, 1, generator=generator)


def training_task(*, side: int = SIDE, train: int = 40, val: int = 12) -> TrainingTask:
    head = torch.randn(CLASSES, 16, generator=torch.Generator().manual_seed(7))
    return TrainingTask(
        head=nn.functional.normalize(head, dim=-1),
        logit_scale=10.0,
        train=examples(train, seed=1, side=side),
        val=examples(val, seed=2, side=side) if val else None,
        view=view,
    )


def _hang_in_save(saves: int) -> None:
    """Make the process hang in a save: its new file is written, but not yet in place."""
    real, calls = os.fsync, iter(range(1, sys.maxsize))

    def fsync(descriptor: int) -> None:
        real(descriptor)
        if next(calls) == saves:
            print("in the middle of a save", flush=True)  # noqa: T201 - the parent waits for it
            time.sleep(600)

    os.fsync = fsync


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        _hang_in_save(int(sys.argv[2]))
    tuned = drain(fine_tune(conv_tower(), training_task(), settings=QUICK, state=folder / "state"))
    write_tensors(folder / "vector", tuned.difference, manifest={}, format_name="test")
