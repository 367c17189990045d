"""What a recipe says of pictures, by a tower made once. Knows nothing of banks, files or sessions.

answer = answering(recipe, tower, backbone, text)      # the adapted tower, embeddings of the recipe's classes
answer(squares)                                        # (N 3 S S) uint8 -> (N C), as often as is wanted
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.wide import Usual, wide_scale, wide_text, widen
from atlas_engine.heads.registry import Sight, find_head
from atlas_engine.recipe import Recipe

__all__ = ["answering"]

BATCH = 32


def answering(
    recipe: Recipe, tower: nn.Module, backbone: Backbone, text: Tensor
) -> Callable[[Tensor], Tensor]:
    """Squares as the tower takes them to logits, by the recipe's classes."""
    row = find_head(str(recipe.config.get("head", "none")))
    tensors = {name: tensor.to(backbone.device).float() for name, tensor in recipe.head.items()}
    usual, own = Usual.taken_from(tensors)
    seeing = widen(tower, usual=usual) if row.sees is not Sight.said else tower

    @torch.inference_mode()
    def answer(squares: Tensor) -> Tensor:
        parts = [
            seeing(backbone.as_input(some.float() / 255)).float() for some in torch.split(squares, BATCH)
        ]
        features = F.normalize(torch.cat(parts), dim=-1)
        width = features.shape[1]
        scale = wide_scale(backbone.logit_scale, text, width, usual=usual)
        return row.rebuild(own, wide_text(text, width), logit_scale=scale).logits(features)

    return answer
