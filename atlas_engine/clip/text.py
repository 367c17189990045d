"""The zero-shot head: one text embedding per class, from its name and a set of templates.

    head[c] = normalise(mean over templates t of normalise(encode_text(t(c))))               (C D)

A template is a sentence with a gap, as "a photo of a {}." (Radford et al. 2021, CLIP, section 3.1.4). Each
model names the template set that measured best for it, and a caller can choose another (`clip.templates`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.cache import Cache, cache_key
from atlas_engine.class_names import MAX_CLASS_NAME, is_legible, tidy_name
from atlas_engine.clip.backbone import Backbone
from atlas_engine.errors import ModelError, SupportError

__all__ = ["check_class_names", "fill_templates", "text_head"]

BATCH = 256  # sentences


def text_head(
    backbone: Backbone,
    classes: Sequence[str],
    templates: Sequence[str],
    *,
    cache: Cache | None = None,
    key: str = "",
) -> Tensor:
    """Class embeddings (C D) of length 1, in float32 on the backbone's device.

    Each class is cached separately. `key` identifies the weights of the text tower.
    """
    embeddings = {name: _cached(cache, key, name, templates) for name in classes}
    missing = [name for name, embedding in embeddings.items() if embedding is None]
    for name, embedding in zip(missing, _embed(backbone, missing, templates), strict=True):
        embeddings[name] = embedding
        if cache is not None:
            cache.put_tensor(cache_key("text", key, name, *templates), embedding)
    rows = [row for row in (embeddings[name] for name in classes) if row is not None]
    return torch.stack(rows).to(backbone.device)


def _embed(backbone: Backbone, classes: Sequence[str], templates: Sequence[str]) -> list[Tensor]:
    """One embedding (D) per class."""
    if not classes:
        return []
    if backbone.encode_text is None:
        raise ModelError(
            f"{backbone.name} has no text tower, so it cannot read class names. Give class embeddings with "
            "class_embeddings=…, or let few_shot make prototypes from the support."
        )
    sentences = [sentence for name in classes for sentence in fill_templates(name, templates)]
    with torch.inference_mode():
        batches = [sentences[start : start + BATCH] for start in range(0, len(sentences), BATCH)]
        features = torch.cat([backbone.encode_text(batch) for batch in batches]).float()
    units = F.normalize(features, dim=-1).reshape(len(classes), len(templates), -1)
    return list(F.normalize(units.mean(dim=1), dim=-1).cpu().clone())


def _cached(cache: Cache | None, key: str, name: str, templates: Sequence[str]) -> Tensor | None:
    return None if cache is None else cache.get_tensor(cache_key("text", key, name, *templates))


def fill_templates(class_name: str, templates: Sequence[str]) -> list[str]:
    """One sentence per template.

    >>> fill_templates("otter", ("{}", "a photo of a {}."))
    ['otter', 'a photo of a otter.']
    """
    return [template.replace("{}", class_name) for template in templates]


def check_class_names(classes: Sequence[str], *, at_least: int = 1) -> tuple[str, ...]:
    """The class names, tidied; or a SupportError that says which one cannot be used, and why."""
    if isinstance(classes, str):
        raise SupportError(f"class names must be a list, but got the text {classes!r}. Pass [{classes!r}].")
    names = tuple(tidy_name(str(name)) for name in classes)
    if len(names) < at_least:
        raise SupportError(
            f"got {len(names)} class name{'' if len(names) == 1 else 's'}, but at least {at_least} are "
            f"needed. Add {at_least - len(names)} more."
        )
    positions: dict[str, int] = {}  # of each name, whatever its case
    for position, name in enumerate(names, start=1):
        if not name:
            raise SupportError(
                f"class name {position} of {len(names)} is empty. Give it a name or remove it."
            )
        if not is_legible(name):
            raise SupportError(
                f"class name {position} ({name[:30]!r}) has characters that cannot be shown. Type it anew."
            )
        if len(name) > MAX_CLASS_NAME:
            raise SupportError(
                f"class name {position} ('{name[:30]}…') has {len(name)} characters, but at most "
                f"{MAX_CLASS_NAME} are taken. Shorten it."
            )
        first = positions.setdefault(name.casefold(), position)
        if first != position:
            raise SupportError(f"class name '{name}' stands twice, at {first} and {position}. Remove one.")
    return names
