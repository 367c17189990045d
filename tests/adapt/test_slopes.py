"""Coefficients from slopes: the slopes are derivatives, the solution is the minimum."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from atlas_engine.adapt.slopes import PULL, Slopes, solve
from atlas_engine.heads.base import UNUSED, LabelledFeatures, ZeroShot
from tests.tiny import tiny_encoder, tiny_images


def problem(labels):
    encoder = tiny_encoder()
    composer = encoder.composer
    images = tiny_images(labels.shape[1])
    with torch.no_grad():
        features = encoder.at(composer.initial()).features(images)
    text = F.normalize(torch.randn(3, features.shape[1], generator=torch.Generator().manual_seed(5)), dim=-1)
    heads = [ZeroShot.fit(LabelledFeatures(features, row, text, logit_scale=10.0)) for row in labels]
    return encoder, composer, images, heads


def margin(encoder, lam, image, head, label):
    with torch.no_grad():
        logits = head.logits(encoder.at(lam).features(image[None]))[0]
    others = torch.cat([logits[:label], logits[label + 1 :]])
    return float(logits[label] - others.logsumexp(dim=0))


def test_slopes_are_what_finite_differences_say():
    labels = torch.tensor([[0, 2], [1, UNUSED]])
    encoder, composer, images, heads = problem(labels)
    slopes = Slopes(encoder, images[None], labels, heads)
    assert list(slopes.measure())[-1] == 1.0
    along = torch.randn(composer.shape, generator=torch.Generator().manual_seed(1))
    small = 1e-2
    for run, image in ((0, 0), (0, 1), (1, 0)):
        label = int(labels[run, image])
        there, back = (
            margin(encoder, sign * small * along, images[image], heads[run], label) for sign in (1, -1)
        )
        told = float((slopes.slopes[run, image] * along).sum())
        assert abs((there - back) / (2 * small) - told) < 0.02 * max(1.0, abs(told))
    assert not slopes.slopes[1, 1].any()


def test_the_solution_is_the_minimum_of_the_whole_problem():
    generator = torch.Generator().manual_seed(0)
    margins, slopes = torch.randn(6, generator=generator), torch.randn(6, 40, generator=generator)
    lam = solve(margins, slopes).requires_grad_()
    strength = PULL * slopes.square().sum(dim=1).mean() / len(margins)
    (F.softplus(-(margins + slopes @ lam)).mean() + strength / 2 * lam.square().sum()).backward()
    assert lam.grad.abs().max() < 1e-4
    assert lam.detach().abs().max() > 1e-3


def test_a_stronger_pull_stays_nearer_to_zero_and_no_slopes_give_zero():
    generator = torch.Generator().manual_seed(0)
    margins, slopes = torch.randn(6, generator=generator), torch.randn(6, 40, generator=generator)
    assert solve(margins, slopes, pull=10.0).norm() < solve(margins, slopes, pull=1.0).norm()
    assert not solve(margins, torch.zeros(6, 40)).any()


def test_the_margins_get_better_by_the_coefficients_found():
    labels = torch.tensor([[0, 1, 2, 0]])
    encoder, composer, images, heads = problem(labels)
    slopes = Slopes(encoder, images[None], labels, heads)
    list(slopes.measure())
    lam = slopes.coefficients()[0]
    after = [margin(encoder, lam, images[n], heads[0], int(labels[0, n])) for n in range(4)]
    losses = [float(F.softplus(-torch.tensor(list(some))).mean()) for some in (slopes.margins[0], after)]
    assert losses[1] < losses[0]
    assert lam.shape == composer.shape
