"""Corruptions: each does what its name says, more at each severity, and the same to the same image."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from atlas_engine.data.filters import disc, filtered, gaussian, line, smooth_noise
from atlas_engine.errors import ConfigError, ImageError
from atlas_engine.runtime import generator
from studies.corruptions import CORRUPTIONS, SEVERITIES, Corruption

NAMES = sorted(CORRUPTIONS)
RANDOM = {"gaussian-noise", "shot-noise", "motion-blur", "fog", "frost", "snow"}


def scene(count=3, side=64):
    """Hills of colour with a dark disc: smooth parts, an edge, and a grain of detail."""
    draw = generator(11)
    y, x = torch.linspace(-1, 1, side)[:, None], torch.linspace(-1, 1, side)[None, :]
    images = []
    for index in range(count):
        hills = torch.stack([smooth_noise(side, side, draw) for _ in range(3)])
        inside = (x - 0.2 * index).square() + y.square() < 0.25
        images.append((torch.where(inside, 0.3 * hills, 0.2 + 0.6 * hills) * 255).to(torch.uint8))
    return torch.stack(images)


def change(name, severity, pixels):
    return (Corruption(name, severity)(pixels).float() - pixels.float()).abs().mean().item()


@pytest.mark.parametrize("name", NAMES)
def test_each_severity_changes_more_than_the_one_before(name):
    changes = [change(name, severity, scene()) for severity in SEVERITIES]
    assert changes[0] > 0.3, "of 255 levels"
    assert all(milder < harder for milder, harder in pairwise(changes)), changes


@pytest.mark.parametrize("name", NAMES)
def test_even_the_hardest_leaves_the_image_recognisable(name):
    """Seen from afar, a corrupted image is nearer to its original than to any other of the set."""
    pixels = scene(4)
    corrupted = Corruption(name, 5)(pixels)

    def from_afar(images):
        small = F.interpolate(images.float(), (12, 12), mode="area").flatten(1)
        return F.normalize(small - small.mean(dim=1, keepdim=True), dim=1)

    likeness = from_afar(corrupted) @ from_afar(pixels).T
    assert likeness.argmax(dim=1).tolist() == [0, 1, 2, 3]
    assert likeness.diagonal().min() > 0.5


@pytest.mark.parametrize("name", NAMES)
def test_what_happens_to_an_image_is_its_own_affair(name):
    pixels = scene(4)
    before, state = pixels.clone(), torch.get_rng_state()
    together = Corruption(name, 3)(pixels)
    assert together.dtype == torch.uint8
    assert together.shape == pixels.shape
    assert torch.equal(Corruption(name, 3)(pixels), together), "again"
    assert torch.equal(Corruption(name, 3)(pixels[[2, 0]]), together[[2, 0]]), "in other company"
    assert torch.equal(pixels, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(Corruption(name, 3)(pixels, seed=1), together) == (name not in RANDOM)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("height", "width"), [(8, 8), (31, 17)])
def test_small_odd_and_blank_images_go_through(name, height, width):
    for level in (0, 255):
        blank = torch.full((2, 3, height, width), level, dtype=torch.uint8)
        for severity in (1, 5):
            assert Corruption(name, severity)(blank).shape == blank.shape
    assert Corruption(name, 5)(blank[:0]).shape == (0, 3, height, width)


def test_noise_has_the_deviation_it_says():
    grey = torch.full((1, 3, 128, 128), 128, dtype=torch.uint8)
    for severity, deviation in zip(SEVERITIES, CORRUPTIONS["gaussian-noise"].strengths, strict=True):
        noisy = Corruption("gaussian-noise", severity)(grey).float() / 255
        # clipping at black and white takes a little off the widest
        assert noisy.std().item() == pytest.approx(deviation, rel=0.05)
    photons = CORRUPTIONS["shot-noise"].strengths[1]
    shot = Corruption("shot-noise", 2)(grey).float() / 255
    assert shot.std().item() == pytest.approx((0.5 / photons) ** 0.5, rel=0.05)


@pytest.mark.parametrize("name", ["defocus-blur", "motion-blur"])
def test_blurs_keep_the_light_and_lose_the_detail(name):
    pixels = scene(1, side=128)
    blurred = Corruption(name, 5)(pixels).float()
    assert blurred.mean().item() == pytest.approx(pixels.float().mean().item(), abs=2.0)
    assert blurred.diff(dim=3).abs().max() < 0.7 * pixels.float().diff(dim=3).abs().max()


def test_brightness_contrast_and_pixels_in_figures():
    pixels = scene(1, side=40)
    brighter = Corruption("brightness", 1)(pixels).float() - pixels.float()
    assert brighter.max().item() == pytest.approx(0.09 * 255, abs=1)
    assert Corruption("contrast", 2)(pixels).float().std() / pixels.float().std() == pytest.approx(
        0.45, rel=0.01
    )
    blocks = Corruption("pixelate", 1)(pixels)
    assert torch.equal(blocks, blocks[:, :, ::2, ::2].repeat_interleave(2, dim=2).repeat_interleave(2, dim=3))


def test_corruption_by_size_is_the_same_share_of_a_larger_image():
    dot = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    dot[:, :, 24:40, 24:40] = 255
    large = dot.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    reach = [(Corruption("defocus-blur", 5)(one) > 8).float().mean().item() for one in (dot, large)]
    assert reach[0] == pytest.approx(reach[1], rel=0.1)


def test_a_corruption_is_written_as_name_and_severity():
    assert Corruption.parse("fog:3") == Corruption("fog", 3)
    assert Corruption.parse(" motion-blur : 5 ") == Corruption("motion-blur", 5)
    for row in CORRUPTIONS.values():
        assert row.help
        assert Corruption.parse(str(Corruption(row.name, 2))) == Corruption(row.name, 2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fgo:3", "corruption 'fgo' is not known. Did you mean 'fog'?"),
        ("", "corruption '' is not known."),
        (":3", "corruption '' is not known."),
        ("fog", "corruption 'fog' needs a severity, 1 .mild. to 5 .hard., after a colon: 'fog:3'"),
        ("fog:", "corruption 'fog:' needs a severity"),
        ("fog:high", "corruption 'fog:high' needs a severity"),
        ("fog:-1", "corruption 'fog:-1' needs a severity"),
        ("fog:0", "corruption 'fog' has severity 0 but takes 1 .mild. to 5"),
        ("fog:6", "corruption 'fog' has severity 6 but takes 1 .mild. to 5"),
    ],
)
def test_what_cannot_be_understood_is_answered_kindly(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Corruption.parse(text)


@pytest.mark.parametrize("pixels", [torch.zeros(1, 3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.uint8)])
def test_only_batches_of_bytes_are_taken(pixels):
    with pytest.raises(ImageError, match=r"takes uint8 pixels of shape \(B, 3, H, W\), but got"):
        Corruption("fog", 1)(pixels)


def test_every_kernel_adds_up_to_one_and_a_point_changes_nothing():
    images = scene().float()
    kernels = [gaussian(torch.tensor([0.0, 0.4, 2.0]), widest=2.0), disc(0.2), disc(3.3), line(0.1, 1.0)]
    kernels += [line(7.0, angle) for angle in (0.0, 0.8, 3.1)]
    for kernel in kernels:
        torch.testing.assert_close(kernel.sum(dim=(1, 2)), torch.ones(len(kernel)))
    torch.testing.assert_close(filtered(images, kernels[0])[0], images[0])
    level = torch.full((1, 3, 9, 9), 0.7)
    torch.testing.assert_close(filtered(level, disc(3.3)), level)


def test_a_line_smears_along_its_angle():
    across, down = line(9.0, 0.0)[0], line(9.0, torch.pi / 2)[0]
    assert (across.sum(dim=0) > 0.05).sum() >= 8
    assert across.sum(dim=1).max().item() == pytest.approx(1.0)
    torch.testing.assert_close(down, across.T)
