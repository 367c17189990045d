"""ImageNet's thousand concepts, and names, as the text tower embeds them: the fixed points that images learn.

    embed_words(["garden gnome", "red kite"]).concepts          # (1000 D), rows of length 1

Each concept is the mean of the embeddings of its name, its synonyms and its definition. The direction that
all concepts share says nothing and is projected out, of names as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.clip import bundled

__all__ = [
    "Concept",
    "TextEncoder",
    "WordEmbeddings",
    "concept_words",
    "embed_words",
    "imagenet",
    "remove_shared_direction",
    "text_encoder",
    "text_projection",
]

CHUNK = 256
TextEncoder = Callable[[Sequence[str]], Tensor]  # sentences to (N D)


@dataclass(frozen=True)
class WordEmbeddings:
    """Unit embeddings: of the thousand concepts (1000 D), and of the named images' names (K D)."""

    concepts: Tensor
    names: Tensor


def embed_words(names: Sequence[str]) -> WordEmbeddings:
    """The concepts, and the names given, as unit vectors."""
    projection = text_projection()
    return WordEmbeddings(concept_words(), F.normalize(_embed(text_encoder(), names) @ projection.T, dim=-1))


def concept_words() -> Tensor:
    """The thousand concepts as unit vectors (1000 D)."""
    embedded = F.normalize(_concept_embeddings() @ text_projection().T, dim=-1)  # (3 1000 D)
    return F.normalize(embedded.mean(dim=0), dim=-1)


def text_projection() -> Tensor:
    """The text tower's projection (D D), which takes out what all concepts share."""
    return remove_shared_direction(_concept_embeddings())


def remove_shared_direction(embeddings: Tensor) -> Tensor:
    """The projection (D D) that takes out the mean direction of embeddings (3 1000 D)."""
    shared = F.normalize(embeddings.mean(dim=(0, 1)), dim=0)
    return torch.eye(len(shared)) - torch.outer(shared, shared)


@functools.cache
def text_encoder() -> TextEncoder:
    """Sentences to the text tower's output (N D), before any projection."""
    clip = bundled.build().eval()
    clip.text.proj = nn.Identity()
    encode = bundled.text_encoder(clip, torch.device("cpu"))

    def read(sentences: Sequence[str]) -> Tensor:
        with torch.no_grad():
            return encode(sentences)

    return read


@dataclass(frozen=True)
class Concept:
    """One ImageNet class: its name in open_clip, and WordNet's synonyms and definition as timm ships them."""

    name: str
    synonyms: tuple[str, ...]
    definition: str

    @property
    def names(self) -> tuple[str, ...]:
        """The name and its synonyms, each once."""
        return tuple(dict.fromkeys((self.name, *self.synonyms)))


def imagenet() -> tuple[Concept, ...]:
    """The thousand classes, in the order of every ImageNet classifier."""
    runtime.ensure_torchvision()
    from open_clip import IMAGENET_CLASSNAMES
    from timm.data import ImageNetInfo

    info = ImageNetInfo()
    lemmas = [info.index_to_description(index) for index in range(1000)]
    full = [info.index_to_description(index, detailed=True) for index in range(1000)]
    return tuple(
        Concept(
            name=str(name),
            synonyms=tuple(part.strip() for part in lemma.split(",")),
            definition=detail.removeprefix(lemma).lstrip(" :"),
        )
        for name, lemma, detail in zip(IMAGENET_CLASSNAMES, lemmas, full, strict=True)
    )


@functools.cache
def _concept_embeddings() -> Tensor:
    """Unit embeddings (3 1000 D) of each concept's name, its synonyms (their mean) and its definition."""
    concepts = imagenet()
    groups = [(c.name,) for c in concepts] + [c.synonyms for c in concepts]
    groups += [(f"{c.name}: {c.definition}",) for c in concepts]
    units = _embed(text_encoder(), [sentence for group in groups for sentence in group])
    means = [part.mean(dim=0) for part in torch.split(units, [len(group) for group in groups])]
    return F.normalize(torch.stack(means), dim=-1).reshape(3, len(concepts), -1)


def _embed(encode: TextEncoder, sentences: Sequence[str]) -> Tensor:
    """Unit embeddings (N D)."""
    parts = [sentences[start : start + CHUNK] for start in range(0, len(sentences), CHUNK)]
    return torch.cat([F.normalize(encode(part), dim=-1) for part in parts])
