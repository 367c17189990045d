"""Pictures that the tests draw for themselves, and where the repository is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image as PILImage

from atlas_engine.data.folders import ClassFolder, read_folder
from atlas_engine.data.image import Image

ROOT = Path(__file__).resolve().parent.parent
COLOURS = {"red": (220, 40, 40), "blue": (40, 60, 220), "dark_green": (20, 90, 30)}


def write_pictures(root: Path, counts: dict[str, int], *, side: int = 48) -> ClassFolder:
    """A folder of noisy squares, each class in its colour (grey where the name is no colour we know)."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for index in range(count):
            PILImage.fromarray(square(COLOURS.get(name, (128, 128, 128)), seed=index, side=side)).save(
                root / name / f"{index}.png"
            )
    return read_folder(root)


def square(colour: tuple[int, int, int], *, seed: int, side: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, 20, (side, side, 3))
    return np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)


def noise_picture(seed: int, *, side: int = 64) -> Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image(f"noise {seed}", pixels)
