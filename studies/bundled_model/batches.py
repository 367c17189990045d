"""The images that the bundled model is aligned with, and how they are cropped and restyled on the fly.

The styles (grey, outline, flat colours) are made from the photographs themselves, so that a drawing of a
thing is taught to mean what the photograph of it means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.errors import SupportError
from studies.bundled_model.words import imagenet

__all__ = [
    "UNKNOWN",
    "AlignmentData",
    "augment",
    "imagenet_labels",
    "mix_labels",
    "normalise",
    "outline",
    "posterise",
]

UNKNOWN = -1
"""The label of an image that nobody has labelled."""

MIN_CROP = 0.5  # share of the side
STYLE_SHARE = 0.4  # of images that are restyled


@dataclass(frozen=True)
class AlignmentData:
    """Images with the index of each one's ImageNet concept (or `UNKNOWN`), and images with names."""

    pixels: Tensor  # (N 3 S S) uint8
    labels: Tensor  # (N)
    named: Tensor  # (M 3 S S) uint8
    names: Tensor  # (M), indices into a list of names
    weights: Tensor  # (M), how often each named image is drawn

    def __post_init__(self) -> None:
        for images, labels in ((self.pixels, self.labels), (self.named, self.names)):
            if len(images) != len(labels) or not len(images):
                raise SupportError(f"got {len(images)} images and {len(labels)} labels. Give one for each.")


def imagenet_labels(classes: Sequence[str]) -> list[int]:
    """The ImageNet index of each class name, found among the concepts' names; unknown names are refused."""
    known = {name.casefold(): index for index, c in reversed(list(enumerate(imagenet()))) for name in c.names}
    strange = [name for name in classes if name.casefold() not in known]
    if strange:
        raise SupportError(
            f"{len(strange)} of {len(classes)} labelled classes are not ImageNet's, such as '{strange[0]}'. "
            f"Give their folder as unlabelled."
        )
    return [known[name.casefold()] for name in classes]


def mix_labels(guess: Tensor, labels: Tensor, share: float) -> Tensor:
    """The guess (B 1000) with `share` of each known label (B) mixed in."""
    target = guess.clone()
    known = (labels != UNKNOWN).nonzero().flatten()
    target[known] *= 1 - share
    target[known, labels[known]] += share
    return target


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
    """(images − mean) / std, channel by channel."""
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
    """A random crop of each image, stretched and mirrored at random, in one sampling grid."""
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
    """Brightness, contrast and saturation, each changed by up to a quarter."""
    bright, contrast, colour = 1 + (torch.rand(3, len(images), 1, 1, 1, generator=generator) - 0.5) * 0.5
    grey = images.mean(dim=1, keepdim=True)
    images = grey + (images - grey) * colour
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    changed: Tensor = (images - middle) * contrast + middle * bright
    return changed.clamp(0, 1)
