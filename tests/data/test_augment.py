"""Random views: crops, mirroring and colours do what they say, and depend on the generator alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from atlas_engine.data.augment import STRONG, WEAK, Augment
from atlas_engine.runtime import generator
from tests.drawn import square

STILL = Augment(smallest=1.0, flip=False, jitter=0.0)


def ramp(count=8, side=32):
    """Brightness from left to right, and a little from top to bottom."""
    x, y = torch.arange(side), torch.arange(side)
    return (40 + 4 * x[None, :] + 2 * y[:, None]).to(torch.uint8).expand(count, 3, side, side)


def test_with_all_off_a_view_is_the_image():
    views = STILL(ramp(), generator(0))
    # grid_sample places its points by float32 sums
    torch.testing.assert_close(views, ramp().float() / 255, atol=1e-4, rtol=0)


def test_the_generator_decides():
    one, same, other = (Augment()(ramp(), generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert len({float(view.mean()) for view in one}) == 8, "each image of a batch has draws of its own"
    assert one.min() >= 0
    assert one.max() <= 1


def test_images_are_mirrored_only_if_allowed():
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


def test_the_share_of_grey_images_is_the_one_asked_for():
    colours = torch.tensor([200, 100, 30], dtype=torch.uint8).view(1, 3, 1, 1).expand(200, 3, 8, 8)

    def grey(share):
        views = replace(STILL, grey=share)(colours, generator(5))
        return (views.amax(dim=1) - views.amin(dim=1)).amax(dim=(1, 2)) < 1e-6

    assert not grey(0.0).any()
    assert 30 < grey(0.25).sum() < 70
    assert grey(1.0).all()


def test_blur_takes_detail_from_half_of_the_images_and_light_from_none():
    checks = (
        (255 * ((torch.arange(32)[:, None] + torch.arange(32)) % 2)).to(torch.uint8).expand(100, 3, 32, 32)
    )
    views = replace(STILL, blur=0.05)(checks, generator(6))
    detail = views.std(dim=(1, 2, 3))
    assert 30 < (detail > 0.49).sum() < 70, "as sharp as they were"
    assert detail.min() < 0.1
    # a border of the chequerboard is repeated outwards, which moves the mean a little
    torch.testing.assert_close(views.mean(dim=(1, 2, 3)), torch.full((100,), 0.5), atol=0.02, rtol=0)


def test_a_hole_is_a_square_no_larger_than_asked_and_has_the_mean_colour():
    pixels = torch.randint(0, 256, (100, 3, 40, 40), generator=generator(7), dtype=torch.uint8)
    whole = STILL(pixels, generator(8))
    views = replace(STILL, hole=0.5)(pixels, generator(8))
    cut = (views != whole).any(dim=1)  # (B H W)
    sides = torch.stack([cut.any(dim=1).sum(dim=1), cut.any(dim=2).sum(dim=1)])
    assert 15 < sides.max() <= 21
    assert torch.equal(cut, cut.any(dim=2, keepdim=True) & cut.any(dim=1, keepdim=True)), "a full square"
    deepest = cut.flatten(1).sum(dim=1).argmax()
    inside = views[deepest][:, cut[deepest]]
    assert inside.unique().numel() == 1
    assert inside[0, 0].item() == pytest.approx(whole[deepest].mean().item(), abs=1e-5)


def test_the_strong_view_is_further_from_the_image_than_the_weak():
    pixels = torch.stack([torch.from_numpy(square((90, 160, 40), seed=i, side=64)) for i in range(16)])
    pixels = pixels.permute(0, 3, 1, 2).contiguous()
    pixels[:, :, 20:40, 10:30] = 230  # something to move, mirror and cut
    plain = pixels.float() / 255
    weak, strong = (
        (replace(preset, flip=False)(pixels, generator(9)) - plain).abs().mean() for preset in (WEAK, STRONG)
    )
    assert 0 < 2 * weak < strong


def test_presets_depend_on_the_generator_alone_and_stay_in_range():
    before = torch.get_rng_state()
    for preset in (WEAK, STRONG):
        one, same, other = (preset(ramp(), generator(seed)) for seed in (1, 1, 2))
        assert torch.equal(one, same)
        assert not torch.equal(one, other)
        assert one.shape == ramp().shape
        assert one.min() >= 0
        assert one.max() <= 1
    assert torch.equal(before, torch.get_rng_state())
