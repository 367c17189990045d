"""Gradients inside a float16 tower: small ones survive, heads do not see the factor, float32 is untouched."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cosine_similarity, cross_entropy

from atlas_engine.adapt.trainable import HEAD, LAM, TrainableNorms, TrainableWithHeads
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.compose.gradient_scale import ENTRY, GradientScale
from atlas_engine.heads.base import LabelledFeatures
from atlas_engine.heads.lpp import LPP
from tests.tiny import tiny_clip, tiny_composer, tiny_head, tiny_images

LABELS = torch.tensor([0, 1, 2, 3, 0, 1])
SMALL = 1e-7  # a factor on the loss that pushes the tower's gradients below 6e-8
SAME_WAY = 0.99  # float16 keeps 11 bits of each product: the direction survives


def gradient(precision, *, size=SMALL, runs=1, parts=1):
    """∂L/∂λ of a small loss, in as many runs, with the images in as many parts."""
    visual = tiny_clip().visual
    composer = tiny_composer(visual)
    lam = composer.initial().expand(runs, *composer.shape).clone()
    composition = ComposedEncoder(visual, composer, autocast=precision).at(lam)
    for run in range(runs):
        for images, labels in zip(tiny_images().chunk(parts), LABELS.chunk(parts), strict=True):
            logits = composition.logits(images, tiny_head(), logit_scale=10.0, run=run)
            loss = cross_entropy(logits, labels, reduction="sum") / len(LABELS)
            (size * 10.0**run * loss).backward()  # each run's gradient needs a factor of its own
    return composition.gradient()


@pytest.mark.parametrize("parts", [1, 3])
def test_a_small_gradient_survives_float16(parts):
    wanted, found = gradient(None), gradient(torch.float16, parts=parts)
    assert found.abs().max() > 0
    assert cosine_similarity(found.flatten(), wanted.flatten(), dim=0) > SAME_WAY
    assert 0.9 < found.norm() / wanted.norm() < 1.1


def test_without_the_factor_it_would_vanish(monkeypatch):
    monkeypatch.setattr(GradientScale, "enter", lambda _, features, **_given: features)
    assert gradient(torch.float16).abs().max() == 0


def test_runs_side_by_side_have_a_factor_each():
    wanted, found = gradient(None, runs=3), gradient(torch.float16, runs=3)
    assert cosine_similarity(found.flatten(1), wanted.flatten(1), dim=1).min() > SAME_WAY
    norms = (found / wanted.norm(dim=(1, 2), keepdim=True)).norm(dim=(1, 2))
    assert 0.9 < norms.min() <= norms.max() < 1.1


@pytest.mark.parametrize("size", [1e-20, 1e20])
def test_no_loss_is_too_small_or_too_large(size):
    wanted, found = (gradient(precision, size=size).flatten() / size for precision in (None, torch.float16))
    assert cosine_similarity(found, wanted, dim=0) > SAME_WAY


def test_other_precisions_have_no_factor():
    features = torch.ones(2, 3, requires_grad=True)
    scale = GradientScale()
    assert scale.enter(features) is features
    assert scale.enter(features, precision=torch.bfloat16) is features
    assert scale.leave(features) is features
    assert scale.enter(features, precision=torch.float16) is not features


def test_the_factor_is_a_power_of_two_that_the_first_gradient_chooses():
    features = torch.ones(2, 3, requires_grad=True)
    scale = GradientScale()
    for upstream, wanted in ((0.0, 0.0), (3e-5, 3e-5 * 2**19), (6e-5, 6e-5 * 2**19)):
        features.grad = None
        scale.enter(features, precision=torch.float16).backward(torch.full((2, 3), upstream))
        assert features.grad.tolist() == torch.full((2, 3), wanted).tolist()
        assert torch.equal(scale.leave(features.grad), torch.full((2, 3), upstream))
    assert ENTRY / 2 < 3e-5 * 2**19 <= ENTRY


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_not_a_number_is_not_hidden(number):
    features = torch.ones(2, 3, requires_grad=True)
    scale = GradientScale()
    scale.enter(features, precision=torch.float16).backward(torch.full((2, 3), number))
    assert not scale.leave(features.grad).isfinite().any()


def test_a_head_that_learns_with_the_coefficients_does_not_see_the_factor(monkeypatch):
    visual, images = tiny_clip().visual, tiny_images()
    text = tiny_head()
    with torch.no_grad():
        features = torch.nn.functional.normalize(visual(images), dim=-1)
    head = LPP.start(LabelledFeatures(features, LABELS, text, logit_scale=10.0))
    found = {}
    for word in ("off", "float16"):
        monkeypatch.setenv("ATLAS_AUTOCAST", word)
        composer = tiny_composer(visual)
        trainable = TrainableWithHeads(
            ComposedEncoder(visual, composer), [head], start=composer.initial()[None]
        )
        forward = trainable.at({name: tensor.start for name, tensor in trainable.tensors_to_learn.items()})
        cross_entropy(forward.logits_fn(0)(images), LABELS).backward()
        found[word] = forward.gradients()
    assert {name for name in found["off"] if name.startswith(HEAD)}
    for name, wanted in found["off"].items():
        ratio = found["float16"][name].norm() / wanted.norm()
        assert 0.9 < ratio < 1.1, name
    assert not torch.equal(found["off"][LAM], found["float16"][LAM])


def test_norm_layers_learn_in_the_precision_of_the_machine(monkeypatch):
    trainable = TrainableNorms(tiny_clip().visual, tiny_head(), logit_scale=10.0)
    start = {name: tensor.start for name, tensor in trainable.tensors_to_learn.items()}
    found = {}
    for word in ("off", "float16"):
        monkeypatch.setenv("ATLAS_AUTOCAST", word)
        forward = trainable.at(start)
        (SMALL * cross_entropy(forward.logits_fn(0)(tiny_images()), LABELS)).backward()
        found[word] = torch.cat([grad.flatten() for grad in forward.gradients().values()])
    assert not torch.equal(found["off"], found["float16"])
    assert cosine_similarity(found["off"], found["float16"], dim=0) > SAME_WAY
