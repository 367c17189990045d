"""What is taught: images, which of a thousand concepts each shows, and pictures with names of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from atlas_engine.errors import SupportError
from studies.bundled_model.vocabulary import imagenet

__all__ = ["UNKNOWN", "AlignBatch", "labels_of", "with_labels"]

UNKNOWN = -1


@dataclass(frozen=True)
class AlignBatch:
    """Images as uint8 squares (N 3 S S), and the index of each one's concept, or −1 where nobody has said.

    Besides, `named` pictures (M 3 S S): `names` (M) counts into a list of names, and `weights` (M) say how
    often each picture is shown.
    """

    pixels: Tensor
    labels: Tensor
    named: Tensor
    names: Tensor
    weights: Tensor

    def __post_init__(self) -> None:
        for images, labels in ((self.pixels, self.labels), (self.named, self.names)):
            if len(images) != len(labels) or not len(images):
                raise SupportError(f"got {len(images)} images and {len(labels)} labels. Give one for each.")


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


def with_labels(guess: Tensor, labels: Tensor, share: float) -> Tensor:
    """The guess (B 1000) with `share` of each known label mixed in."""
    target = guess.clone()
    known = (labels != UNKNOWN).nonzero().flatten()
    target[known] *= 1 - share
    target[known, labels[known]] += share
    return target
