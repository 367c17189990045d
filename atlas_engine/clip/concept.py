"""The bundled model's image head: from a tower's features to where sentences live. Knows no training.

    p    = softmax(C f + b)                   which of a thousand concepts the picture shows
    read = E p + A f + a                      their embeddings, mixed, and what the mixture misses
    seen = V f + v                            what the picture looks like, whatever it is called
    z    = [ read / |read| · s,  seen / |seen| · √(1 − s²) ]

Sentences have zeros where `seen` is: it changes no comparison with words, and keeps apart pictures that words
do not. The head is fixed as the text tower is: its tensors are buffers, and no parameter block.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["CONCEPTS", "FEATURES", "READ", "SEEN", "ConceptHead"]

FEATURES = 1280  # of the tower
CONCEPTS = 1000
READ, SEEN = 384, 128
READ_LENGTH = math.sqrt(0.5)  # s


class ConceptHead(nn.Module):
    """Features (B 1280) to embeddings (B 512) of length 1."""

    concept_weight: Tensor
    concept_bias: Tensor
    meaning: Tensor
    rest_weight: Tensor
    rest_bias: Tensor
    seen_weight: Tensor
    seen_bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        shapes = {
            "concept_weight": (CONCEPTS, FEATURES),
            "concept_bias": (CONCEPTS,),
            "meaning": (CONCEPTS, READ),
            "rest_weight": (READ, FEATURES),
            "rest_bias": (READ,),
            "seen_weight": (SEEN, FEATURES),
            "seen_bias": (SEEN,),
        }
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))

    def read(self, features: Tensor) -> Tensor:
        """What the picture says (B 384), of length 1."""
        likely = F.linear(features, self.concept_weight, self.concept_bias).softmax(dim=-1)
        rest = F.linear(features, self.rest_weight, self.rest_bias)
        return F.normalize(likely @ self.meaning + rest, dim=-1)  # (B 1000) @ (1000 384) -> (B 384)

    def forward(self, features: Tensor) -> Tensor:
        """Both parts side by side."""
        seen = F.normalize(F.linear(features, self.seen_weight, self.seen_bias), dim=-1)
        return torch.cat([self.read(features) * READ_LENGTH, seen * math.sqrt(1 - READ_LENGTH**2)], dim=-1)
