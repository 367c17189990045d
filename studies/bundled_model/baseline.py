"""The training-free baseline: a classifier's guesses as a sentence embedding.

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
from studies.bundled_model.words import TextEncoder, imagenet, text_encoder

__all__ = ["SIZE", "baseline"]

SIZE = 160
TEMPERATURE = 2.0
BATCH = 64


def baseline() -> Callable[[Tensor, Sequence[str]], Tensor]:
    """A function from images (B 3 160 160) in 0…1 and class names to cosines (B C)."""
    tower = towers.lite0()
    encode = text_encoder()
    with torch.inference_mode():
        names = F.normalize(_embed(encode, [concept.name for concept in imagenet()]), dim=-1)
    middle = names.mean(dim=0)

    def cosines(images: Tensor, classes: Sequence[str]) -> Tensor:
        with torch.inference_mode():
            probs = (tower((images - 0.5) / 0.5) / TEMPERATURE).softmax(dim=1)
            embedded = F.normalize(probs @ (names - middle), dim=-1)  # (B 1000) @ (1000 D) -> (B D)
            head = F.normalize(F.normalize(_embed(encode, list(classes)), dim=-1) - middle, dim=-1)
            return embedded @ head.T

    return cosines


def _embed(encode: TextEncoder, sentences: list[str]) -> Tensor:
    return torch.cat([encode(sentences[start : start + BATCH]) for start in range(0, len(sentences), BATCH)])
