"""What the text tower makes of concepts and names: the fixed points that images learn to find.

Each ImageNet concept is the mean of its name's, its synonyms' and its definition's embedding; the direction
that all of them share says nothing and is taken out, of names as well. Knows nothing of images.
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
from studies.bundled_model.student import Words

__all__ = [
    "Concept",
    "concept_embeddings",
    "concept_words",
    "embed_words",
    "imagenet",
    "text_projection",
    "text_reader",
    "without_shared_direction",
]

CHUNK = 256
TextEncoder = Callable[[Sequence[str]], Tensor]


def embed_words(names: Sequence[str]) -> Words:
    """The concepts, and the names given, as unit vectors."""
    projection = text_projection()
    return Words(concept_words(), F.normalize(_read(text_reader(), names) @ projection.T, dim=-1))


def concept_words() -> Tensor:
    """The thousand concepts as unit vectors (1000 D)."""
    return concept_embeddings(_readings(), text_projection())


def text_projection() -> Tensor:
    """The text tower's projection (D D): what all concepts share is taken out."""
    return without_shared_direction(_readings())


def concept_embeddings(readings: Tensor, projection: Tensor) -> Tensor:
    """One unit vector a concept (1000 D): the mean of its readings, each projected (D D) to a unit vector."""
    return F.normalize(F.normalize(readings @ projection.T, dim=-1).mean(dim=0), dim=-1)


def without_shared_direction(readings: Tensor) -> Tensor:
    """The projection (D D) that takes out the mean of all readings: what all concepts share says nothing."""
    shared = F.normalize(readings.mean(dim=(0, 1)), dim=0)
    return torch.eye(len(shared)) - torch.outer(shared, shared)


@functools.cache
def text_reader() -> TextEncoder:
    """Sentences to what the text tower makes of them (N D), before any projection."""
    clip = bundled.build().eval()
    clip.text.proj = nn.Identity()
    encode = bundled.text_encoder(clip, torch.device("cpu"))

    def read(sentences: Sequence[str]) -> Tensor:
        with torch.no_grad():
            return encode(sentences)

    return read


@functools.cache
def _readings() -> Tensor:
    """What the text tower makes of each concept (3 1000 D): of its name, its synonyms and its definition."""
    concepts = imagenet()
    groups = [(c.name,) for c in concepts] + [c.synonyms for c in concepts]
    groups += [(f"{c.name}: {c.definition}",) for c in concepts]
    units = _read(text_reader(), [sentence for group in groups for sentence in group])
    means = [part.mean(dim=0) for part in torch.split(units, [len(group) for group in groups])]
    return F.normalize(torch.stack(means), dim=-1).reshape(3, len(concepts), -1)


def _read(text: TextEncoder, sentences: Sequence[str]) -> Tensor:
    parts = [sentences[start : start + CHUNK] for start in range(0, len(sentences), CHUNK)]
    return torch.cat([F.normalize(text(part), dim=-1) for part in parts])


# TODO merged docstring: """The words that images are taught: ImageNet's thousand classes. Knows nothing of images. Each class has open_clip's curated name, and WordNet's synonyms and definition as timm ships them. """
@dataclass(frozen=True)
class Concept:
    """One ImageNet class: its name, its other names, and what WordNet says it is."""

    name: str
    synonyms: tuple[str, ...]
    definition: str

    @property
    def names(self) -> tuple[str, ...]:
        """The name and its synonyms, each once."""
        return tuple(dict.fromkeys((self.name, *self.synonyms)))


def imagenet() -> tuple[Concept, ...]:
    """The thousand classes, in the order of every ImageNet classifier."""
    runtime.ready()
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
