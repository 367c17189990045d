"""The words that images are taught: ImageNet's thousand classes. Knows nothing of images.

Each class has open_clip's curated name, and WordNet's synonyms and definition as timm ships them.
"""

from __future__ import annotations

from dataclasses import dataclass

from atlas_engine import runtime

__all__ = ["Concept", "imagenet"]


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
