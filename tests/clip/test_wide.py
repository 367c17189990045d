"""Wide towers see more and say the same."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from atlas_engine.clip.wide import wide_scale, wide_text, widen
from atlas_engine.modules import twin
from tests.clip.test_stages import tower
from tests.tiny import tiny_images

WIDE = ("vit", "efficientnet", "tiny-vit")


@pytest.mark.parametrize("kind", WIDE)
def test_words_are_compared_with_as_before_and_more_is_seen(kind):
    visual, images = tower(kind), tiny_images(3)
    with torch.inference_mode():
        said, wide = visual(images), widen(visual)(images)
    text = F.normalize(torch.randn(5, said.shape[1], generator=torch.Generator().manual_seed(0)), dim=-1)
    width = wide.shape[1]
    assert width > said.shape[1]
    assert torch.allclose(wide.norm(dim=-1), torch.ones(3), atol=1e-5)
    plain = 20.0 * F.normalize(said, dim=-1) @ text.T
    scale = wide_scale(20.0, text, width)
    assert torch.allclose(scale * wide @ wide_text(text, width).T, plain, atol=1e-3)


@pytest.mark.parametrize("kind", WIDE)
def test_parameters_keep_their_names_and_the_tower_stays_as_it_is(kind):
    visual, images = tower(kind), tiny_images(2)
    with torch.inference_mode():
        before = visual(images)
        wide = widen(visual)
        assert torch.equal(visual(images), before)
        assert torch.equal(twin(wide)(images), wide(images))
    assert {name for name, _ in wide.named_parameters()} | {"proj"} >= dict(visual.named_parameters()).keys()


def test_a_tower_that_cannot_be_told_apart_stays_as_it_is():
    visual = tower("resnet")
    assert widen(visual) is visual
    text = torch.eye(4)
    assert torch.equal(wide_text(text, 4), text)
    assert wide_scale(20.0, text, 4) == 20.0
