"""Convolution of images, each with a kernel of its own; kernels for blur; and smooth noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["disc", "filtered", "gaussian", "line", "smooth_noise"]


def filtered(images: Tensor, kernels: Tensor) -> Tensor:
    """Images (B C H W) convolved with kernels (B K K), K odd. The border pixels are repeated outwards."""
    B, C, H, W = images.shape
    reach = kernels.shape[-1] // 2
    padded = F.pad(images, (reach,) * 4, mode="replicate").view(1, B * C, H + 2 * reach, W + 2 * reach)
    weights = kernels.repeat_interleave(C, dim=0)[:, None]  # (B·C 1 K K)
    return F.conv2d(padded, weights, groups=B * C).view(B, C, H, W)


def gaussian(sigmas: Tensor, *, widest: float) -> Tensor:
    """(B) -> (B K K): Gaussians of these σ in pixels, in a window for σ = `widest`; σ = 0 is a point."""
    y, x = _offsets(math.ceil(2.5 * widest), sigmas.device)
    kernels = torch.exp(-(x.square() + y.square()) / (2 * sigmas.clamp(min=1e-3)[:, None, None].square()))
    return _normalise(kernels)


def disc(radius: float) -> Tensor:
    """(1 K K): an even disc of this radius in pixels, as a lens out of focus shows a point."""
    y, x = _offsets(math.ceil(radius), torch.device("cpu"))
    return _normalise((radius + 0.5 - (x.square() + y.square()).sqrt()).clamp(0, 1)[None])


def line(length: float, angle: float) -> Tensor:
    """(1 K K): a line of this length in pixels, as motion shows a point; the angle is in radians."""
    y, x = _offsets(math.ceil(length / 2), torch.device("cpu"))
    along, across = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    return _normalise((((length + 1) / 2 - along.abs()).clamp(0, 1) * (1 - across.abs()).clamp(0, 1))[None])


def smooth_noise(height: int, width: int, generator: torch.Generator, *, coarsest: int = 2) -> Tensor:
    """(H W) from 0 to 1: value noise from `coarsest` cells on, each octave half as wide and high."""
    noise, cells, amplitude = torch.zeros(height, width), coarsest, 1.0
    while cells < min(height, width):
        grid = torch.rand(1, 1, cells + 1, cells + 1, generator=generator)
        noise += amplitude * F.interpolate(grid, (height, width), mode="bilinear", align_corners=True)[0, 0]
        cells, amplitude = cells * 2, amplitude / 2
    low, high = noise.min(), noise.max()
    return (noise - low) / (high - low).clamp(min=1e-6)


def _offsets(reach: int, device: torch.device) -> tuple[Tensor, Tensor]:
    steps = torch.arange(-reach, reach + 1, dtype=torch.float32, device=device)
    return steps[:, None], steps[None, :]


def _normalise(weights: Tensor) -> Tensor:
    return weights / weights.sum(dim=(-2, -1), keepdim=True)
