"""The split into train, val and test: nothing leaks, every class gets its share, the seed decides."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas_engine.data.split import group_near_duplicates, split_groups
from atlas_engine.errors import SupportError

SHARES = {"val_share": 0.1, "test_share": 0.2, "seed": 0}


def noise(count, *, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, 32, 32), generator=draw, dtype=torch.uint8)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 5), min_size=2, max_size=12), min_size=1, max_size=4),
    st.integers(0, 100),
)
def test_no_group_is_in_two_parts_and_every_class_is_in_train_and_test(sizes, seed):
    labels, groups = [], []
    for label, tracks in enumerate(sizes):
        for size in tracks:
            labels += [label] * size
            groups += [len(groups)] * size
    split = split_groups(labels, groups, val_share=0.1, test_share=0.2, seed=seed)
    parts = (split.train, split.val, split.test)
    assert sorted(index for part in parts for index in part) == list(range(len(labels)))
    owners = [{groups[index] for index in part} for part in parts]
    assert sum(map(len, owners)) == len(set().union(*owners))
    for label, tracks in enumerate(sizes):
        held = [sum(labels[index] == label for index in part) for part in parts]
        assert held[0]
        assert held[2]
        assert bool(held[1]) == (len(tracks) >= 3)


def test_shares_are_kept_in_each_class():
    labels = [0] * 100 + [1] * 50
    split = split_groups(labels, list(range(150)), **SHARES)
    for part, wanted in ((split.train, (70, 35)), (split.val, (10, 5)), (split.test, (20, 10))):
        assert tuple(sum(labels[i] == label for i in part) for label in (0, 1)) == wanted


def test_the_seed_decides():
    labels, groups = [0] * 30, list(range(30))
    assert split_groups(labels, groups, **SHARES) == split_groups(labels, groups, **SHARES)
    assert split_groups(labels, groups, **SHARES) != split_groups(labels, groups, **SHARES | {"seed": 1})


def test_a_val_share_of_zero_gives_no_val():
    assert split_groups([0] * 9, list(range(9)), **SHARES | {"val_share": 0.0}).val == ()


def test_a_track_is_one_group_within_its_class():
    tracks = ["1", "1", "2", None, "1", None]
    groups = group_near_duplicates(noise(6), [0, 0, 0, 0, 1, 1], tracks=tracks, alike=0.0)
    assert groups[0] == groups[1]
    assert len(set(groups)) == 5, "the same track in another class is another object"


def test_images_that_look_alike_are_one_group_and_this_is_transitive():
    pixels = noise(5)
    for index, step in ((1, 6), (2, 12)):
        pixels[index] = (pixels[0].int() + step).clamp(0, 255)
    labels, no_tracks = [0] * 5, [None] * 5
    groups = group_near_duplicates(pixels, labels, tracks=no_tracks, alike=8.0)
    assert groups[0] == groups[1] == groups[2], "0 and 2 differ by 12, but 1 is near both"
    assert len(set(groups)) == 3
    assert len(set(group_near_duplicates(pixels, labels, tracks=no_tracks, alike=1.0))) == 5
    pixels[4] = pixels[3]
    assert len(set(group_near_duplicates(pixels, labels, tracks=no_tracks, alike=0.0))) == 4, (
        "a file saved twice"
    )


@pytest.mark.parametrize(
    ("labels", "groups", "sentence"),
    [
        ([0, 1, 1], [0, 1, 2], r"class 'seal' has 1 image, but at least 2 are needed"),
        ([0, 0, 0, 1, 1], [0, 0, 0, 3, 4], r"all 3 images of class 'seal' show one thing"),
    ],
)
def test_a_class_that_cannot_be_split_is_named(labels, groups, sentence):
    with pytest.raises(SupportError, match=sentence):
        split_groups(labels, groups, names=("seal", "otter"), **SHARES)
