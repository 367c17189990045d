"""Labelled images split into train, val and test, without near-duplicates in two parts.

Images of one object stay in one part: frames of one track, and images of one class that look alike (a burst,
a turntable, a file saved twice).

    groups = group_near_duplicates(pixels, labels, tracks=tracks, alike=12.0)
    split = split_groups(labels, groups, val_share=0.1, test_share=0.2, seed=0)
    split.train, split.val, split.test                                        # positions, each in order
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.errors import SupportError
from atlas_engine.runtime import generator

__all__ = ["Split", "group_near_duplicates", "require_two_groups", "split_groups"]

THUMBNAIL = 16  # pixels per side: images that are alike at this size count as alike


@dataclass(frozen=True)
class Split:
    """Positions of images, none in two parts. `val` is empty if no class has three groups."""

    train: tuple[int, ...]
    val: tuple[int, ...]
    test: tuple[int, ...]


def group_near_duplicates(
    pixels: Tensor, labels: Sequence[int], *, tracks: Sequence[str | None], alike: float
) -> list[int]:
    """The group number of each image of `pixels` (N 3 S S, uint8); images of one group show one object.

    Two images of a class are in one group if they share a track, or if their thumbnails differ by at most
    `alike` (root mean square, of 255). This is transitive: a group is a connected component.
    """
    parent = list(range(len(labels)))  # union-find
    # join the images of one track
    first_of: dict[tuple[int, str], int] = {}
    for index, (label, track) in enumerate(zip(labels, tracks, strict=True)):
        if track is not None:
            _join(parent, first_of.setdefault((label, track), index), index)
    # join the images of one class that look alike
    for members in _by_class(labels):
        thumbnails = _thumbnails(pixels[members])  # (n 3·16·16)
        distances = torch.cdist(thumbnails, thumbnails, compute_mode="donot_use_mm_for_euclid_dist")
        close = (distances <= alike * thumbnails.shape[1] ** 0.5).triu(diagonal=1).nonzero().tolist()
        for one, other in close:
            _join(parent, members[one], members[other])
    return [_root(parent, index) for index in range(len(parent))]


def split_groups(
    labels: Sequence[int],
    groups: Sequence[int],
    *,
    val_share: float,
    test_share: float,
    seed: int,
    names: Sequence[str] = (),
) -> Split:
    """The groups of each class in random order: the first to test, the next to val, the others to train.

    Of each class at least one group is in train, one in test and, if it has three, one in val. The shares are
    shares of groups; a `val_share` of 0 gives no val. The class `names` are for the error of a class that
    cannot be split.
    """
    train: list[int] = []
    val: list[int] = []
    test: list[int] = []
    for label, members in enumerate(_by_class(labels)):
        own = list(dict.fromkeys(groups[index] for index in members))
        require_two_groups(names[label] if names else str(label), images=len(members), groups=len(own))
        order = torch.randperm(len(own), generator=generator(seed * 1_000_003 + label)).tolist()
        rank_of = {own[i]: rank for rank, i in enumerate(order)}
        n_test = min(max(1, round(test_share * len(own))), len(own) - 1)
        n_val = min(max(1, round(val_share * len(own))), len(own) - 1 - n_test) if val_share else 0
        for index in members:
            rank = rank_of[groups[index]]
            part = test if rank < n_test else val if rank < n_test + n_val else train
            part.append(index)
    return Split(tuple(sorted(train)), tuple(sorted(val)), tuple(sorted(test)))


def require_two_groups(name: str, *, images: int, groups: int | None = None) -> None:
    """Raise a SupportError unless a class with so many images, in so many groups, can be split in two."""
    if images < 2:
        raise SupportError(
            f"class '{name}' has {images} image, but at least 2 are needed: one to learn from and one to "
            f"measure on. Add {2 - images} or more, or remove the class."
        )
    if groups == 1:
        raise SupportError(
            f"all {images} images of class '{name}' show one thing (one track, or much alike), so none can "
            "be held out to measure on. Add images of another, or lower `alike`."
        )


def _by_class(labels: Sequence[int]) -> list[list[int]]:
    members: list[list[int]] = [[] for _ in range(max(labels) + 1)]
    for index, label in enumerate(labels):
        members[label].append(index)
    return members


def _thumbnails(pixels: Tensor) -> Tensor:
    """(n 3 S S) -> (n 3·16·16)."""
    return F.interpolate(pixels.float(), (THUMBNAIL, THUMBNAIL), mode="area").flatten(1)


def _root(parent: list[int], index: int) -> int:
    while parent[index] != index:
        parent[index] = parent[parent[index]]
        index = parent[index]
    return index


def _join(parent: list[int], one: int, other: int) -> None:
    low, high = sorted((_root(parent, one), _root(parent, other)))
    parent[high] = low
