"""The two measures that a tower is chosen by."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from atlas_engine.runtime import generator
from studies.bundled_model.compare import _nearest_mean, _ridge


def clouds(spread):
    """Ten classes of eight unit vectors around centres of their own."""
    seeded = generator(0)
    centres = torch.randn(10, 16, generator=seeded)
    labels = torch.arange(10).repeat_interleave(8)
    points = centres[labels] + spread * torch.randn(80, 16, generator=seeded)
    return F.normalize(points, dim=-1), labels


def test_tight_clouds_are_told_apart_by_one_shot_and_noise_is_not():
    assert _nearest_mean(*clouds(0.01), k=1) == 1.0
    assert _nearest_mean(*clouds(100.0), k=1) < 0.3


def test_more_shots_help():
    features, labels = clouds(1.0)
    assert _nearest_mean(features, labels, k=4) > _nearest_mean(features, labels, k=1)


def test_the_regression_finds_a_linear_map():
    seeded = generator(0)
    features, true = torch.randn(500, 16, generator=seeded), torch.randn(16, 4, generator=seeded)
    found = _ridge(features, features @ true)
    torch.testing.assert_close(found, true, atol=0.05, rtol=0.05)  # the ridge shrinks by about a hundredth
