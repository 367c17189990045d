"""The zero-shot head: one embedding a class name. Knows nothing of images.

head[c] = normalise(mean over templates of normalise(text(template(c))))         (C D)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.cache import Cache, cache_key
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.prompts import sentences

__all__ = ["text_head"]

BATCH = 256


def text_head(
    backbone: Backbone,
    classes: Sequence[str],
    templates: Sequence[str],
    *,
    cache: Cache | None = None,
    key: str = "",
) -> Tensor:
    """Class embeddings (C D), L2-normalised, in float32 on the backbone's device.

    Each class is cached by itself under `key`, which stands for the weights of the text tower.
    """
    found = {name: _cached(cache, key, name, templates) for name in classes}
    missing = [name for name, embedding in found.items() if embedding is None]
    for name, embedding in zip(missing, _embed(backbone, missing, templates), strict=True):
        found[name] = embedding
        if cache is not None:
            cache.put_tensor(cache_key("text", key, name, *templates), embedding)
    rows = [row for row in (found[name] for name in classes) if row is not None]
    return torch.stack(rows).to(backbone.device)


def _embed(backbone: Backbone, classes: Sequence[str], templates: Sequence[str]) -> list[Tensor]:
    if not classes:
        return []
    texts = [text for name in classes for text in sentences(name, templates)]
    with torch.inference_mode():
        parts = [backbone.text(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
    units = F.normalize(torch.cat(parts).float(), dim=-1).reshape(len(classes), len(templates), -1)
    return list(F.normalize(units.mean(dim=1), dim=-1).cpu().clone())


def _cached(cache: Cache | None, key: str, name: str, templates: Sequence[str]) -> Tensor | None:
    return None if cache is None else cache.get_tensor(cache_key("text", key, name, *templates))
