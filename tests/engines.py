"""A small session for tests of what stands above the engine's parts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from atlas_engine.clip.backbone import Backbone, Preprocessing
from atlas_engine.engine import Atlas
from tests.tiny import tiny_clip


@functools.cache
def tiny_engine() -> Atlas:
    """A session with a small CLIP of both towers; a word's letters, one by one, are its tokens."""
    clip: Any = tiny_clip("vit")
    device = torch.device("cpu")

    def encode_text(sentences: Sequence[str]) -> Tensor:
        rows = [[1 + ord(letter) % 62 for letter in sentence[-7:]] for sentence in sentences]
        tokens = torch.tensor([row + [63] + [0] * (7 - len(row)) for row in rows])  # 63 ends a sentence
        return clip.encode_text(tokens)

    return Atlas(
        Backbone(
            name="tiny",
            visual=clip.visual,
            preprocessing=Preprocessing(size=32, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
            logit_scale=20.0,
            dim=16,
            templates="plain",
            device=device,
            encode_text=encode_text,
        )
    )
