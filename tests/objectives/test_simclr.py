"""NT-Xent against closed forms and the definition; on features, under the identity as a head."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import normalize

from atlas_engine.adapt.trainable import LAM, TrainableCoefficients
from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.registry import OBJECTIVES
from atlas_engine.objectives.simclr import SimCLR
from atlas_engine.runtime import generator
from tests.tiny import tiny_clip, tiny_encoder, tiny_images


def identity(images):
    return images


def two_views(count=5, dims=4, *, seed=0):
    draw = generator(seed)
    return torch.randn(count, dims, generator=draw), torch.randn(count, dims, generator=draw)


def loss_of(weak, strong, weights=None, **settings):
    return SimCLR(**settings)(identity, Batch(weak, strong=strong, weights=weights)).item()


def nt_xent_by_hand(weak, strong, temperature):
    z = [normalize(view.double(), dim=0) for view in [*weak, *strong]]
    total, count = 0.0, len(z)
    for i in range(count):
        exps = {k: math.exp(float(z[i] @ z[k]) / temperature) for k in range(count) if k != i}
        total -= math.log(exps[(i + count // 2) % count] / sum(exps.values()))
    return total / count


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_it_is_the_papers_definition(temperature):
    weak, strong = two_views()
    wanted = nt_xent_by_hand(weak, strong, temperature)
    assert loss_of(weak, strong, temperature=temperature) == pytest.approx(wanted)


def test_equal_vectors_cost_the_logarithm_of_the_other_views():
    same = torch.ones(6, 3)
    assert loss_of(same, same) == pytest.approx(math.log(11))


def test_one_image_alone_costs_nothing_and_no_image_neither():
    weak, strong = two_views(1)
    assert loss_of(weak, strong) == 0.0
    assert loss_of(weak, strong, torch.zeros(1)) == 0.0


def test_views_that_agree_cost_less_than_views_that_do_not():
    agreed = torch.eye(4)
    assert loss_of(agreed, agreed) < 0.01 < loss_of(agreed, agreed.roll(1, dims=0))


def test_order_length_and_the_names_of_the_views_do_not_matter():
    weak, strong = two_views()
    order = torch.tensor([3, 1, 4, 0, 2])
    for other in (
        loss_of(weak[order], strong[order]),
        loss_of(strong, weak),
        loss_of(7 * weak, 0.1 * strong),
    ):
        assert other == pytest.approx(loss_of(weak, strong))


def test_an_image_without_weight_is_as_if_it_were_not_there():
    weak, strong = two_views()
    without = loss_of(weak[[0, 1, 3]], strong[[0, 1, 3]])
    assert loss_of(weak, strong, torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0])) == pytest.approx(without)


def test_it_asks_for_a_second_view():
    with pytest.raises(ConfigError, match="Give the batch a strong view"):
        SimCLR()(identity, Batch(torch.zeros(2, 2)))


def test_under_the_identity_as_a_head_logits_are_features():
    assert OBJECTIVES["simclr"].on_features
    encoder = tiny_encoder()
    start = encoder.composer.initial()[None]
    trainable = TrainableCoefficients(encoder, torch.eye(16), logit_scale=1.0, start=start)
    views = tiny_images(4), tiny_images(4, seed=9)
    forward = trainable.at({LAM: start})
    features = normalize(tiny_clip().visual(torch.cat(views)), dim=-1)
    torch.testing.assert_close(forward.logits_fn(0)(torch.cat(views)), features)
    loss = SimCLR()(forward.logits_fn(0), Batch(views[0], strong=views[1]))
    loss.backward()
    assert loss.item() == pytest.approx(nt_xent_by_hand(*features.detach().split(4), 0.1), rel=1e-5)
    assert forward.gradients()[LAM].any()
