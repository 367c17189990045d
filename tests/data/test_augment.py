"""Random views: crops, mirrors and colours, each what it says, and drawn by the generator alone."""

from __future__ import annotations

import torch

from atlas_engine.data.augment import Augment
from atlas_engine.runtime import generator

STILL = Augment(smallest=1.0, flip=False, jitter=0.0)


def ramp(count=8, side=32):
    """Brightness from left to right, and a little from top to bottom."""
    x, y = torch.arange(side), torch.arange(side)
    return (40 + 4 * x[None, :] + 2 * y[:, None]).to(torch.uint8).expand(count, 3, side, side)


def test_with_all_off_a_view_is_the_picture():
    views = STILL(ramp(), generator(0))
    # grid_sample places its points by float32 sums
    torch.testing.assert_close(views, ramp().float() / 255, atol=1e-4, rtol=0)


def test_the_generator_decides():
    one, same, other = (Augment()(ramp(), generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert len({float(view.mean()) for view in one}) == 8, "each picture of a batch has draws of its own"
    assert one.min() >= 0
    assert one.max() <= 1


def test_mirrors_come_only_where_they_are_allowed():
    def left_to_right(views):
        return (views[:, 0, :, -1].mean(dim=1) > views[:, 0, :, 0].mean(dim=1)).tolist()

    still = Augment(jitter=0.0, flip=False)(ramp(64), generator(0))
    assert all(left_to_right(still))
    mirrored = Augment(jitter=0.0, smallest=1.0)(ramp(64), generator(0))
    assert 16 < sum(left_to_right(mirrored)) < 48, "about half"
    wrong = [index for index, right in enumerate(left_to_right(mirrored)) if not right]
    torch.testing.assert_close(mirrored[wrong], ramp(len(wrong)).float().flip(3) / 255, atol=1e-4, rtol=0)


def test_crops_are_no_smaller_than_asked():
    """The contrast from left to right is the crop's share of the width."""
    for smallest in (0.4, 0.8):
        views = Augment(smallest=smallest, flip=False, jitter=0.0)(ramp(200), generator(3))
        across = (views[:, 0, :, -1] - views[:, 0, :, 0]).mean(dim=1) / (4 * 31 / 255)
        assert across.max() <= 1.001
        assert across.min() >= smallest * 0.75, "a stretched crop is narrower, but not by much"
        assert across.min() <= smallest * 1.3


def test_colours_change_by_no_more_than_asked():
    flat = torch.full((200, 3, 8, 8), 100, dtype=torch.uint8)
    views = Augment(smallest=1.0, flip=False, jitter=0.2)(flat, generator(4)) * 255 / 100
    assert 0.8 - 1e-3 <= views.min() < 0.83
    assert 1.17 < views.max() <= 1.2 + 1e-3
