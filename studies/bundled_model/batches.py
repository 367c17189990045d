"""Images for alignment: small squares in memory, cropped and restyled on the fly. Knows nothing of models.

The styles (grey, outline, flat colours) are drawn from the photographs themselves, so that a drawing of a
thing is taught to mean what the photograph of it means.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["augment", "normalise", "outline", "posterise"]

MIN_CROP = 0.5  # share of the side
STYLE_SHARE = 0.4  # of images that are restyled


def augment(pixels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """uint8 (B 3 S S) to two float batches in 0…1: random crops as they are, and the same ones restyled."""
    crops = _jitter(_crop(pixels.float() / 255, generator), generator)
    images = crops.clone()
    style = torch.rand(len(images), generator=generator)
    for index in (style < STYLE_SHARE).nonzero().flatten().tolist():
        kind = int(style[index] / STYLE_SHARE * 3)
        images[index] = (_grey, outline, posterise)[kind](images[index])
    return crops, images


def normalise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(images − mean) / std, colour by colour."""
    return (images - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)


def outline(image: Tensor) -> Tensor:
    """A pencil drawing of (3 S S): dark lines where brightness changes, on white."""
    grey = image.mean(dim=0, keepdim=True)[None]
    smooth = F.avg_pool2d(F.pad(grey, (2, 2, 2, 2), mode="replicate"), 5, stride=1)
    across = F.pad(smooth, (1, 1, 0, 0), mode="replicate")
    down = F.pad(smooth, (0, 0, 1, 1), mode="replicate")
    slope = ((across[..., 2:] - across[..., :-2]) ** 2 + (down[..., 2:, :] - down[..., :-2, :]) ** 2).sqrt()
    lines = 1 - (slope[0] / (slope.mean() * 4 + 1e-3)).clamp(0, 1)
    return lines.expand(3, -1, -1)


def posterise(image: Tensor, levels: int = 5) -> Tensor:
    """A cartoon of (3 S S): blurred, then cut to a few flat colours."""
    smooth = F.avg_pool2d(F.pad(image[None], (2, 2, 2, 2), mode="replicate"), 5, stride=1)[0]
    return (smooth * (levels - 1)).round() / (levels - 1)


def _grey(image: Tensor) -> Tensor:
    return image.mean(dim=0, keepdim=True).expand(3, -1, -1)


def _crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """One sampling grid an image: scale, place and mirror at once."""
    count = len(images)
    scale = MIN_CROP + (1 - MIN_CROP) * torch.rand(count, generator=generator).sqrt()
    stretch = torch.exp((torch.rand(count, generator=generator) - 0.5) * 0.4)
    mirror = 1 - 2 * (torch.rand(count, generator=generator) < 0.5).float()
    wide, high = (scale * stretch).clamp(max=1), (scale / stretch).clamp(max=1)
    shift = torch.rand(count, 2, generator=generator) * 2 - 1
    grid = torch.zeros(count, 2, 3)
    grid[:, 0, 0], grid[:, 1, 1] = wide * mirror, high
    grid[:, 0, 2], grid[:, 1, 2] = shift[:, 0] * (1 - wide), shift[:, 1] * (1 - high)
    sampling = F.affine_grid(grid, list(images.shape), align_corners=False)
    return F.grid_sample(images, sampling, padding_mode="reflection", align_corners=False)


def _jitter(images: Tensor, generator: torch.Generator) -> Tensor:
    """Brightness, contrast and saturation, each by up to a quarter."""
    bright, contrast, colour = 1 + (torch.rand(3, len(images), 1, 1, 1, generator=generator) - 0.5) * 0.5
    grey = images.mean(dim=1, keepdim=True)
    images = grey + (images - grey) * colour
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    changed: Tensor = (images - middle) * contrast + middle * bright
    return changed.clamp(0, 1)
