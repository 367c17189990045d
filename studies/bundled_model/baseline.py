"""The training-free baseline: a classifier's guesses as a sentence embedding. Knows nothing of training.

    z = Σ_c p_c · (t_c − m)        p: probabilities over ImageNet's classes at temperature 2
                                   t_c: embedding of the class's name, m: their mean

A class name is embedded and centred in the same way, and the nearest one wins (a convex combination of
semantic embeddings).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from studies.bundled_model import towers
from studies.bundled_model.words import imagenet, text_reader

__all__ = ["SIZE", "baseline"]

SIZE = 160
TEMPERATURE = 2.0
BATCH = 64


def baseline() -> Callable[[Tensor, Sequence[str]], Tensor]:
    """A function from images (B 3 160 160) in 0…1 and class names to cosines (B C)."""
    tower = towers.lite0()
    text = text_reader()
    with torch.inference_mode():
        names = F.normalize(_read(text, [concept.name for concept in imagenet()]), dim=-1)
    middle = names.mean(dim=0)

    def cosines(images: Tensor, classes: Sequence[str]) -> Tensor:
        with torch.inference_mode():
            probs = (tower((images - 0.5) / 0.5) / TEMPERATURE).softmax(dim=1)
            seen = F.normalize(probs @ (names - middle), dim=-1)  # (B 1000) @ (1000 D) -> (B D)
            asked = F.normalize(F.normalize(_read(text, list(classes)), dim=-1) - middle, dim=-1)
            return seen @ asked.T

    return cosines


def _read(text: Callable[[Sequence[str]], Tensor], sentences: list[str]) -> Tensor:
    return torch.cat([text(sentences[start : start + BATCH]) for start in range(0, len(sentences), BATCH)])
