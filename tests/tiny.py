"""Small real models and banks for tests: open_clip towers with random weights, vectors from a seed."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from atlas_engine import runtime
from atlas_engine.bank import TaskVector, TaskVectorBank
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import ComposedEncoder

TOWERS = ("vit", "resnet")
_TEXT = {"context_length": 8, "vocab_size": 64, "width": 32, "heads": 2, "layers": 1}
_VISION = {
    "vit": {"layers": 2, "width": 32, "patch_size": 8, "image_size": 32, "head_width": 16},
    "resnet": {"layers": (1, 1, 1, 1), "width": 8, "image_size": 32},
}


@functools.cache
def tiny_clip(tower: str = "vit") -> nn.Module:
    """A whole open_clip model for 32 × 32 images, in eval mode. Shared between tests: only read it."""
    runtime.ensure_torchvision()
    import open_clip

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: nn.Module = open_clip.CLIP(embed_dim=16, vision_cfg=_VISION[tower], text_cfg=_TEXT)
        for module in model.modules():  # fresh BatchNorms have mean 0 and variance 1: give them a past
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 1.5)
                nn.init.ones_(module.weight)
    return model.eval()


def tiny_vectors(visual: nn.Module, *, tasks: int = 3, size: float = 0.1, seed: int = 1) -> list[TaskVector]:
    """Random task vectors, each block's entries about a fraction ``size`` of the base block's spread."""
    generator = torch.Generator().manual_seed(seed)
    base = {name: weights.detach() for name, weights in visual.named_parameters()}

    def tuned(weights: Tensor) -> Tensor:
        spread = size * (weights.std(correction=0) + 0.1)
        return weights + spread * torch.randn(weights.shape, generator=generator)

    return [
        TaskVector.between(
            f"task{t}", base=base, tuned={name: tuned(weights) for name, weights in base.items()}
        )
        for t in range(tasks)
    ]


def tiny_bank(visual: nn.Module, **vectors: float) -> TaskVectorBank:
    return TaskVectorBank.from_vectors(tiny_vectors(visual, **vectors))


def tiny_composer(visual: nn.Module, *, layout: Layout | None = None, **bank: float) -> Composer:
    return Composer(dict(visual.named_parameters()), tiny_bank(visual, **bank), layout)


def tiny_encoder(tower: str = "vit", **bank: float) -> ComposedEncoder:
    visual = tiny_clip(tower).visual
    return ComposedEncoder(visual, tiny_composer(visual, **bank))


def tiny_images(count: int = 6, *, seed: int = 2) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def tiny_head(classes: int = 4, *, seed: int = 3) -> Tensor:
    """(C D) rows of length 1."""
    return nn.functional.normalize(
        torch.randn(classes, 16, generator=torch.Generator().manual_seed(seed)), dim=-1
    )


def tiny_lam(
    encoder: ComposedEncoder, *, runs: int | None = None, size: float = 0.3, seed: int = 4
) -> Tensor:
    """Random free coefficients, or R of them."""
    shape = encoder.composer.shape if runs is None else (runs, *encoder.composer.shape)
    return size * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def drain(loop):
    """All steps, and the ending."""
    steps = []
    while True:
        try:
            steps.append(next(loop))
        except StopIteration as end:
            return steps, end.value
