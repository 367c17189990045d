"""Labelled pictures cut into those to learn from, to choose by and to measure on. Knows nothing of files.

Pictures of one thing never straddle the cut: frames of one track stay together, and so do pictures of one
class that look alike (a burst, a turntable, a file saved twice).

    groups = lookalikes(squares, labels, tracks=tracks, alike=12.0)
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

__all__ = ["Split", "near_duplicate_groups", "require_two_groups", "split_groups"]

THUMBNAIL = 16  # pixels a side: what is alike at this size is alike


@dataclass(frozen=True)
class Split:
    """Positions of pictures, no position twice; `val` is empty where no class has a third group to give."""

    train: tuple[int, ...]
    val: tuple[int, ...]
    test: tuple[int, ...]


def near_duplicate_groups(
    squares: Tensor, labels: Sequence[int], *, tracks: Sequence[str | None], alike: float
) -> list[int]:
    """A group for each picture of `squares` (N 3 S S, uint8); pictures with one group show one thing.

    Two pictures of a class belong together when they share a track, or when their thumbnails differ by at
    most `alike` (root mean square, of 255), and so does whoever belongs to either of them.
    """
    parent = list(range(len(labels)))
    first_of: dict[tuple[int, str], int] = {}
    for index, (label, track) in enumerate(zip(labels, tracks, strict=True)):
        if track is not None:
            _unite(parent, first_of.setdefault((label, track), index), index)
    for members in _by_class(labels):
        thumbnails = _thumbnails(squares[members])  # (n 3·16·16)
        nearness = torch.cdist(thumbnails, thumbnails, compute_mode="donot_use_mm_for_euclid_dist")
        close = (nearness <= alike * thumbnails.shape[1] ** 0.5).triu(diagonal=1).nonzero().tolist()
        for one, other in close:
            _unite(parent, members[one], members[other])
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
    """Each class's groups dealt out by seed: at least one to train, one to test and, of three, one to val.

    Shares are of groups; a `val_share` of 0 gives none. `names` of classes are for the sentence about one
    that cannot be split.
    """
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    for label, members in enumerate(_by_class(labels)):
        own = list(dict.fromkeys(groups[index] for index in members))
        require_two_groups(names[label] if names else str(label), pictures=len(members), things=len(own))
        order = torch.randperm(len(own), generator=generator(seed * 1_000_003 + label)).tolist()
        place = {own[i]: rank for rank, i in enumerate(order)}
        test = min(max(1, round(test_share * len(own))), len(own) - 1)
        val = min(max(1, round(val_share * len(own))), len(own) - 1 - test) if val_share else 0
        for index in members:
            rank = place[groups[index]]
            parts[2 if rank < test else 1 if rank < test + val else 0].append(index)
    return Split(*(tuple(sorted(part)) for part in parts))


def require_two_groups(name: str, *, pictures: int, things: int | None = None) -> None:
    """Raise unless a class of so many pictures, of so many different things, can be cut in two."""
    if pictures < 2:
        raise SupportError(
            f"class '{name}' has {pictures} image, but at least 2 are needed: one to learn from and one to "
            f"measure on. Add {2 - pictures} or more, or remove the class."
        )
    if things == 1:
        raise SupportError(
            f"all {pictures} images of class '{name}' show one thing (one track, or much alike), so none can "
            "be held out to measure on. Add images of another, or lower `alike`."
        )


def _by_class(labels: Sequence[int]) -> list[list[int]]:
    members: list[list[int]] = [[] for _ in range(max(labels) + 1)]
    for index, label in enumerate(labels):
        members[label].append(index)
    return members


def _thumbnails(squares: Tensor) -> Tensor:
    return F.interpolate(squares.float(), (THUMBNAIL, THUMBNAIL), mode="area").flatten(1)


def _root(parent: list[int], index: int) -> int:
    while parent[index] != index:
        parent[index] = parent[parent[index]]
        index = parent[index]
    return index


def _unite(parent: list[int], one: int, other: int) -> None:
    low, high = sorted((_root(parent, one), _root(parent, other)))
    parent[high] = low
