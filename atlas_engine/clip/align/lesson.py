"""What is taught: images, and which of a thousand concepts each shows. Knows nothing of towers.

The words are fixed: each ImageNet concept is the mean of what the text tower makes of its name, its synonyms
and its definition, with the direction that all of them share taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.clip.align.vocabulary import imagenet
from atlas_engine.errors import SupportError

__all__ = ["Lesson", "concept_embeddings", "labels_of", "read_concepts", "without_shared_direction"]

UNKNOWN = -1
TextEncoder = Callable[[Sequence[str]], Tensor]


@dataclass(frozen=True)
class Lesson:
    """uint8 squares (N 3 S S), and the index of each one's concept, or −1 where nobody has said."""

    pixels: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if len(self.pixels) != len(self.labels) or not len(self.pixels):
            raise SupportError(
                f"got {len(self.pixels)} images and {len(self.labels)} labels. Give one for each."
            )


def labels_of(classes: Sequence[str]) -> list[int]:
    """The ImageNet index of each class name, found among the concepts' names; unknown names are refused."""
    known = {name.casefold(): index for index, c in reversed(list(enumerate(imagenet()))) for name in c.names}
    strange = [name for name in classes if name.casefold() not in known]
    if strange:
        raise SupportError(
            f"{len(strange)} of {len(classes)} labelled classes are not ImageNet's, such as '{strange[0]}'. "
            f"Give their folder as unlabelled."
        )
    return [known[name.casefold()] for name in classes]


def read_concepts(text: TextEncoder) -> Tensor:
    """What the text tower makes of each concept (3 1000 D): of its name, its synonyms and its definition."""
    concepts = imagenet()
    groups = [(c.name,) for c in concepts] + [c.synonyms for c in concepts]
    groups += [(f"{c.name}: {c.definition}",) for c in concepts]
    sentences = [sentence for group in groups for sentence in group]
    units = torch.cat([F.normalize(text(part), dim=-1) for part in _chunks(sentences, 256)])
    means = [part.mean(dim=0) for part in torch.split(units, [len(group) for group in groups])]
    return F.normalize(torch.stack(means), dim=-1).reshape(3, len(concepts), -1)


def concept_embeddings(readings: Tensor, projection: Tensor) -> Tensor:
    """One unit vector a concept (1000 D): the mean of its readings, each projected (D D) to a unit vector."""
    return F.normalize(F.normalize(readings @ projection.T, dim=-1).mean(dim=0), dim=-1)


def without_shared_direction(readings: Tensor) -> Tensor:
    """The projection (D D) that takes out the mean of all readings: what all concepts share says nothing."""
    shared = F.normalize(readings.mean(dim=(0, 1)), dim=0)
    return torch.eye(len(shared)) - torch.outer(shared, shared)


def _chunks(sentences: Sequence[str], size: int) -> list[Sequence[str]]:
    return [sentences[start : start + size] for start in range(0, len(sentences), size)]
