"""Baselines on the product's features: kernel ridge in closed form, and towers that go half of the way."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from atlas_engine.heads.base import LabelledFeatures
from studies.methods import STUDY_METHODS, Solver
from studies.problems.few_shot import draw_problem
from studies.same_features import ONE_SHOT, RIDGES, WIDTHS, KernelRidge, move_halfway, read_levels
from tests.studies.drawn_tasks import QUICK


@pytest.fixture(scope="module")
def problem(tiny, folder):
    return draw_problem(folder, tiny.backbone.preprocessing, settings=QUICK, seed=1)


def drawn_support(count=9, classes=3, dim=5):
    draw = torch.Generator().manual_seed(3)
    features = F.normalize(torch.randn(count, dim, generator=draw), dim=1)
    text = F.normalize(torch.randn(classes, dim, generator=draw), dim=1)
    return LabelledFeatures(features, torch.arange(count) % classes, text, logit_scale=4.0)


def answers_without(support, row, width, ridge):
    """The regression's answer for a row that it was not fitted on, solved anew without it."""
    rest = [i for i in range(len(support.labels)) if i != row]
    f, prior = support.features, torch.softmax(4.0 * support.features @ support.text.T, dim=1)
    kernel = torch.exp(-width * (1 - f @ f.T))
    left = kernel[rest][:, rest] + ridge * torch.eye(len(rest))
    alpha = torch.linalg.solve(left, support.one_hot[rest] - prior[rest])
    return prior[row] + kernel[row, rest] @ alpha


def test_kernel_ridge_takes_the_candidates_with_the_least_error_when_shots_are_left_out():
    support = drawn_support()
    errors = {
        (width, ridge): sum(
            float((support.one_hot[i] - answers_without(support, i, width, ridge)).square().sum())
            for i in range(len(support.labels))
        )
        for width in WIDTHS
        for ridge in RIDGES
    }
    width, ridge = min(errors, key=errors.__getitem__)
    fit = KernelRidge.fit(support)
    assert fit.width == width
    kernel = torch.exp(-width * (1 - support.features @ support.features.T))
    prior = torch.softmax(4.0 * support.features @ support.text.T, dim=1)
    expected = torch.linalg.solve(kernel + ridge * torch.eye(9), support.one_hot - prior)
    torch.testing.assert_close(fit.alpha, expected, rtol=1e-3, atol=1e-4)  # two ways to solve in float32
    torch.testing.assert_close(fit.logits(support.features), prior + kernel @ expected, rtol=1e-3, atol=1e-4)


def test_with_one_shot_a_class_kernel_ridge_learns_though_nothing_can_be_left_out():
    drawn = drawn_support()
    first = [int((drawn.labels == label).nonzero()[0]) for label in range(3)]
    support = replace(drawn, features=drawn.features[first], labels=drawn.labels[first])
    fit = KernelRidge.fit(support)
    assert fit.width == ONE_SHOT[0]
    assert torch.equal(fit.logits(support.features).argmax(dim=1), support.labels)


def test_far_from_every_shot_kernel_ridge_answers_as_zero_shot():
    support = drawn_support()
    fit = KernelRidge(support.features, torch.ones(9, 3), support.text, 4.0, width=200.0)
    away = -support.features[:1]
    prior = torch.softmax(4.0 * away @ support.text.T, dim=1)
    torch.testing.assert_close(fit.logits(away), prior)


def test_halfway_is_the_middle_of_the_base_and_the_fine_tuned_tower(tiny):
    visual = tiny.backbone.visual
    change = {name: torch.full_like(weights, 0.2) for name, weights in visual.named_parameters()}
    middle = move_halfway(visual, change)
    for name, weights in visual.named_parameters():
        torch.testing.assert_close(dict(middle.named_parameters())[name], weights + 0.1)


def test_the_base_tower_gives_the_features_that_the_head_of_the_product_sees(tiny, bank, problem):
    pixels = tiny.pixels(problem.support.images)
    text = tiny.head(problem.support.classes)
    shots, features_of = read_levels(tiny, tiny.backbone.visual, problem, text=text, pixels=pixels, views=0)
    torch.testing.assert_close(features_of(pixels), shots.features)
    width = (
        tiny.few_shot(problem.support, method="text-probe", bank=bank).result().recipe.head["weight"].shape[1]
    )
    assert shots.features.shape == (len(pixels), width)


def test_kernel_ridge_learns_the_shots(tiny, problem):
    answer = STUDY_METHODS["kernel-ridge"].solve(Solver(tiny), problem)
    zero_shot = STUDY_METHODS["zero-shot"].solve(Solver(tiny), problem)
    assert answer.accuracy(problem.labels) > zero_shot.accuracy(problem.labels)
