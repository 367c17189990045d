"""Corruptions that make a shifted domain of any images: noise, blur, weather, tone and artefacts.

    Corruption.parse("fog:3")(pixels, seed=0)          # uint8 (B 3 S S) to the same, in fog

Severities go from 1, mild, to 5, hard but still recognisable; they were set by eye on images of 128 px, and
sizes are shares of the image's side. What happens to an image depends on the seed and its own pixels alone,
not on its neighbours or its position in a batch.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.data.decode import compress_as_jpeg
from atlas_engine.data.filters import disc, filtered, line, smooth_noise
from atlas_engine.errors import ConfigError, ImageError, unknown_name

__all__ = ["CORRUPTIONS", "SEVERITIES", "Corruption", "CorruptionRow"]

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Corruption:
    """One kind of corruption at one severity; written ``NAME:SEVERITY``."""

    name: str
    severity: int

    def __post_init__(self) -> None:
        if self.name not in CORRUPTIONS:
            raise ConfigError(unknown_name("corruption", self.name, CORRUPTIONS))
        if self.severity not in SEVERITIES:
            raise ConfigError(
                f"corruption '{self.name}' has severity {self.severity} but takes 1 (mild) to 5 (hard)."
            )

    @classmethod
    def parse(cls, text: str) -> Corruption:
        """``fog:3`` as a `Corruption`; blanks around the parts do not matter."""
        name, colon, severity = (part.strip() for part in text.partition(":"))
        if name in CORRUPTIONS and not (colon and severity.isdecimal()):
            raise ConfigError(
                f"corruption '{text}' needs a severity, 1 (mild) to 5 (hard), after a colon: '{name}:3'."
            )
        return cls(name, int(severity) if severity.isdecimal() else 0)

    def __str__(self) -> str:
        return f"{self.name}:{self.severity}"

    def __call__(self, pixels: Tensor, *, seed: int = 0) -> Tensor:
        """uint8 (B 3 H W) to new pixels of the same shape, on the CPU."""
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1] != 3:
            raise ImageError(
                f"a corruption takes uint8 pixels of shape (B, 3, H, W), but got {pixels.dtype} of shape "
                f"{tuple(pixels.shape)}. Use it before the pixels are normalised."
            )
        row = CORRUPTIONS[self.name]
        strength = row.strengths[self.severity - 1]
        corrupted = torch.empty_like(pixels, device="cpu")
        for index, original in enumerate(pixels.cpu()):
            image = row.apply(original.float() / 255, strength, _image_generator(original, seed))
            corrupted[index] = (image.clamp(0, 1) * 255).round().to(torch.uint8)
        return corrupted


Apply = Callable[[Tensor, float, torch.Generator], Tensor]
"""An image (3 H W) in 0 … 1, the strength and the image's own generator, to the corrupted image (3 H W)."""


@dataclass(frozen=True)
class CorruptionRow:
    """One kind of corruption, as a person chooses it."""

    name: str
    help: str
    strengths: tuple[float, float, float, float, float]  # of severities 1 to 5
    apply: Apply


def _gaussian_noise(image: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    return image + deviation * torch.randn(image.shape, generator=generator)


def _shot_noise(image: Tensor, photons: float, generator: torch.Generator) -> Tensor:
    return torch.poisson(image * photons, generator=generator) / photons


def _defocus_blur(image: Tensor, radius: float, _: torch.Generator) -> Tensor:
    return filtered(image[None], disc(radius * _side(image)))[0]


def _motion_blur(image: Tensor, length: float, generator: torch.Generator) -> Tensor:
    angle = math.pi * torch.rand((), generator=generator).item()
    return filtered(image[None], line(length * _side(image), angle))[0]


def _fog(image: Tensor, density: float, generator: torch.Generator) -> Tensor:
    """Banks of a light grey, nowhere thinner than half as dense."""
    H, W = image.shape[1:]
    veil = density * (0.5 + 0.5 * smooth_noise(H, W, generator))
    return image * (1 - veil) + 0.85 * veil


def _frost(image: Tensor, cover: float, generator: torch.Generator) -> Tensor:
    """Ice with fine veins, bluish white, that grows inwards from the borders."""
    H, W = image.shape[1:]
    y, x = torch.linspace(-1, 1, H)[:, None], torch.linspace(-1, 1, W)[None, :]
    border = torch.maximum(x.abs(), y.abs()).expand(H, W)
    veins = 1 - (2 * smooth_noise(H, W, generator, coarsest=8) - 1).abs()
    reach = border + 0.6 * smooth_noise(H, W, generator, coarsest=4) - 0.3
    ice = ((reach - 1 + cover) * 4).clamp(0, 1) * (0.35 + 0.6 * veins.pow(3))
    return image * (1 - ice) + ice * torch.tensor([0.86, 0.93, 1.0]).view(3, 1, 1)


def _snow(image: Tensor, amount: float, generator: torch.Generator) -> Tensor:
    """Flakes that fall aslant before a paler image."""
    H, W = image.shape[1:]
    cells = max(8, round(0.6 * _side(image)))
    chances = torch.rand(1, 1, cells, cells, generator=generator)
    slant = math.pi * (0.3 + 0.4 * torch.rand((), generator=generator).item())
    flakes = F.interpolate((chances < 0.12 * amount).float(), (H, W), mode="bilinear", align_corners=False)
    streaks = (2 * filtered(flakes, line(0.03 * _side(image), slant))[0]).clamp(0, 1)
    grey = image.mean(dim=0, keepdim=True)
    pale = image + 0.6 * amount * (0.5 + 0.5 * grey - image)
    return pale * (1 - streaks) + streaks


def _brightness(image: Tensor, more: float, _: torch.Generator) -> Tensor:
    return image + more


def _contrast(image: Tensor, share: float, _: torch.Generator) -> Tensor:
    middle = image.mean()
    return middle + share * (image - middle)


def _jpeg(image: Tensor, quality: float, _: torch.Generator) -> Tensor:
    pixels = (image * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    return torch.from_numpy(compress_as_jpeg(pixels, quality=int(quality))).permute(2, 0, 1).float() / 255


def _pixelate(image: Tensor, share: float, _: torch.Generator) -> Tensor:
    H, W = image.shape[1:]
    small = F.interpolate(image[None], (max(1, round(share * H)), max(1, round(share * W))), mode="area")
    return F.interpolate(small, (H, W), mode="nearest")[0]


_ROWS = (
    CorruptionRow("gaussian-noise", "grain", (0.05, 0.08, 0.12, 0.17, 0.24), _gaussian_noise),
    CorruptionRow("shot-noise", "too little light", (60, 30, 15, 8, 4), _shot_noise),
    CorruptionRow("defocus-blur", "out of focus", (0.010, 0.015, 0.022, 0.030, 0.040), _defocus_blur),
    CorruptionRow("motion-blur", "a moving camera", (0.04, 0.07, 0.10, 0.14, 0.18), _motion_blur),
    CorruptionRow("fog", "fog", (0.35, 0.50, 0.62, 0.74, 0.85), _fog),
    CorruptionRow("frost", "ice on the lens", (0.30, 0.45, 0.60, 0.75, 0.90), _frost),
    CorruptionRow("snow", "falling snow", (0.20, 0.35, 0.50, 0.70, 0.90), _snow),
    CorruptionRow("brightness", "too bright", (0.09, 0.17, 0.26, 0.35, 0.44), _brightness),
    CorruptionRow("contrast", "washed out", (0.60, 0.45, 0.30, 0.20, 0.12), _contrast),
    CorruptionRow("jpeg", "saved too small", (25, 16, 10, 7, 4), _jpeg),
    CorruptionRow("pixelate", "too few pixels", (0.50, 0.38, 0.28, 0.22, 0.17), _pixelate),
)

CORRUPTIONS = MappingProxyType({row.name: row for row in _ROWS})


def _side(image: Tensor) -> int:
    return min(image.shape[1:])


def _image_generator(pixels: Tensor, seed: int) -> torch.Generator:
    """A generator seeded by the seed and the image's own pixels (3 H W)."""
    digest = hashlib.sha256(f"{seed} {tuple(pixels.shape)} ".encode())
    digest.update(pixels.contiguous().numpy().data)
    return runtime.generator(int.from_bytes(digest.digest()[:7], "big"))
