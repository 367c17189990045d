"""A small open_clip model and task vectors from real fine-tuning of it. Made once, shared: only read them."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from atlas_engine import runtime
from atlas_engine.bank import TaskVector
from atlas_engine.bank.vector import VectorInfo

TASKS = ("stripes", "disks", "checks")
_TEXT = {"context_length": 8, "vocab_size": 64, "width": 32, "heads": 2, "layers": 1}
_VISION = {"layers": 2, "width": 192, "patch_size": 8, "image_size": 32, "head_width": 64}


@functools.cache
def small_clip() -> nn.Module:
    """A whole CLIP whose image tower has both large and small blocks."""
    runtime.ensure_torchvision()
    import open_clip

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return open_clip.CLIP(embed_dim=32, vision_cfg=_VISION, text_cfg=_TEXT).eval()


@functools.cache
def base_weights() -> dict[str, Tensor]:
    return {name: weights.detach() for name, weights in small_clip().visual.named_parameters()}


@functools.cache
def tuned_vectors() -> tuple[TaskVector, ...]:
    """Three vectors from real training: the tower learns to tell drawn patterns of three kinds."""
    return tuple(
        TaskVector.between(name, base=base_weights(), tuned=_fine_tuned(seed), info=_info(seed))
        for seed, name in enumerate(TASKS)
    )


@functools.cache
def base_gradient() -> dict[str, Tensor]:
    """∂L/∂θ at the base for the first pattern."""
    images, labels = drawn(0, torch.Generator().manual_seed(99))
    leaves = {name: weights.clone().requires_grad_() for name, weights in base_weights().items()}
    loss_at(leaves, images, labels).backward()
    return {name: leaf.grad for name, leaf in leaves.items()}


def _fine_tuned(seed: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    leaves = {name: weights.clone().requires_grad_() for name, weights in base_weights().items()}
    optimiser = torch.optim.AdamW(leaves.values(), lr=3e-4)
    for _ in range(6):
        optimiser.zero_grad()
        loss_at(leaves, *drawn(seed, draw)).backward()
        optimiser.step()
    return {name: leaf.detach() for name, leaf in leaves.items()}


def loss_at(leaves: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
    features = torch.func.functional_call(small_clip().visual, leaves, (images,))
    return nn.functional.cross_entropy(10 * nn.functional.normalize(features, dim=-1)[:, :4], labels)


def drawn(kind: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """32 images of four classes: stripes, disks or checks of four sizes, with noise."""
    labels = torch.randint(0, 4, (32,), generator=draw)
    y, x = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    period = (4.0 + 3.0 * labels).view(-1, 1, 1)
    pattern = [
        torch.sin(6.28 * x / period),
        (period - torch.hypot(x - 16, y - 16)).sigmoid(),
        torch.sin(6.28 * x / period) * torch.sin(6.28 * y / period),
    ][kind]
    noise = torch.randn(32, 3, 32, 32, generator=draw)
    return pattern.unsqueeze(1) + 0.3 * noise, labels


def _info(seed: int) -> VectorInfo:
    centroid = torch.nn.functional.one_hot(torch.tensor(seed), 4).float() + 0.1
    return VectorInfo(
        dataset=f"drawn-{seed}",
        accuracy_before=0.25,
        accuracy_after=0.5 + 0.1 * seed,
        centroid=tuple(centroid.tolist()),
        provenance={"seed": str(seed)},
    )
