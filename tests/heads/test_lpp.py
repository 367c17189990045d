"""LP++: it starts where it says, never climbs, and makes all folds at once as it makes one."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from atlas_engine.heads.base import LabelledFeatures
from atlas_engine.heads.lpp import LPP, _Problem, descend
from tests.heads.clouds import SCALE, evidence

HARD = {"spread": 1.1, "text_noise": 3.0}


def test_it_starts_at_class_sums_and_the_models_scale():
    found, (features, _) = evidence((3, 3, 3))
    sums = torch.stack([found.features[found.labels == c].sum(dim=0) for c in range(3)])
    start = LPP.start(found)
    assert torch.allclose(start.w, sums, atol=1e-5)
    assert start.alpha.tolist() == [SCALE] * 3
    wanted = features @ (sums + SCALE * found.text).T
    assert torch.allclose(start.logits(features), wanted, atol=1e-4)  # logits of 20, float32


def test_unequal_counts_start_at_means_times_the_mean_count():
    found, _ = evidence((5, 1, 3))
    means = torch.stack([found.features[found.labels == c].mean(dim=0) for c in range(3)])
    assert torch.allclose(LPP.start(found).w, 3.0 * means, atol=1e-5)


@pytest.mark.parametrize("counts", [(4, 4, 4), (9, 1, 2), (1, 1), (2,) * 30])
def test_no_round_makes_the_loss_larger(counts):
    found, _ = evidence(counts, **HARD)
    losses = descend(found, found.labels.unsqueeze(0), iterations=60).losses.squeeze(1)
    assert (losses.diff() <= 1e-6).all()  # rounding of a float32 sum
    assert losses[-1] < 0.99 * losses[0]


def test_the_loss_is_balanced_cross_entropy():
    found, _ = evidence((5, 1, 3), **HARD)
    end = descend(found, found.labels.unsqueeze(0), iterations=7)
    logits = LPP.fitted(found, iterations=7).logits(found.features)
    per_class = [
        cross_entropy(logits[found.labels == c], found.labels[found.labels == c]).item() for c in range(3)
    ]
    assert end.losses[-1].item() == pytest.approx(sum(per_class) / 3, abs=1e-5)


def test_the_steps_are_gradients_over_curvature_bounds():
    found, _ = evidence((3, 2, 4), **HARD)
    problem = _Problem(found, found.features, found.labels.unsqueeze(0))
    w, alpha = problem.w.clone().requires_grad_(), problem.alpha.clone().requires_grad_()
    residual, losses = problem.residual(problem.visual(w), alpha)
    grad_w, grad_alpha = torch.autograd.grad(losses.sum(), (w, alpha))
    with torch.no_grad():
        assert torch.allclose(problem.step_w(residual) * problem.bound_w, grad_w, atol=1e-6)
        assert torch.allclose(problem.step_alpha(residual) * problem.bound_alpha, grad_alpha, atol=1e-6)


def test_the_bounds_hold_the_curvature_at_any_point():
    found, _ = evidence((3, 2, 4), **HARD)
    problem = _Problem(found, found.features, found.labels.unsqueeze(0))
    generator = torch.Generator().manual_seed(1)

    def loss(w, alpha):
        return problem.residual(problem.visual(w.unsqueeze(0)), alpha.unsqueeze(0))[1].sum()

    for size in (0.0, 1.0, 5.0):
        w = size * torch.randn(problem.w[0].shape, generator=generator)
        alpha = size * torch.randn(3, generator=generator)
        (of_w, _), (_, hessian_alpha) = torch.autograd.functional.hessian(loss, (w, alpha))
        hessian_w = of_w.reshape(w.numel(), -1)
        assert torch.linalg.eigvalsh(hessian_w)[-1] <= problem.bound_w.item() + 1e-6
        majoriser = torch.diag(problem.bound_alpha[0]) - hessian_alpha
        assert torch.linalg.eigvalsh(majoriser)[0] >= -1e-6


def test_working_in_the_span_of_few_features_changes_nothing():
    found, (features, _) = evidence((2, 2, 2), dim=40)  # 6 images in 40 dimensions
    problem = _Problem(found, found.features, found.labels.unsqueeze(0))
    w, alpha = problem.w, problem.alpha
    for _ in range(20):
        w = w - problem.step_w(problem.residual(problem.visual(w), alpha)[0])
        alpha = alpha - problem.step_alpha(problem.residual(problem.visual(w), alpha)[0])
    wanted = features @ (w[0] + alpha[0].unsqueeze(1) * found.text).T
    assert torch.allclose(LPP.fitted(found, iterations=20).logits(features), wanted, atol=1e-3)


def test_folds_side_by_side_are_folds_one_by_one():
    found, (features, _) = evidence((3, 1, 4), **HARD)
    labels = torch.stack([found.without(torch.tensor([row])).labels for row in range(8)])
    for fold, own in zip(LPP.folds(found, labels), labels, strict=True):
        alone = LPP.fitted(found.labelled(own))
        assert torch.allclose(fold.logits(features), alone.logits(features), atol=1e-4)
        rows = own >= 0
        rest = LabelledFeatures(found.features[rows], own[rows], found.text, logit_scale=SCALE)
        assert torch.allclose(fold.logits(features), LPP.fitted(rest).logits(features), atol=1e-3)


def test_a_class_without_images_is_text_alone_and_stays_so():
    found, (features, _) = evidence((3, 1, 4))
    head = LPP.fitted(found.without(found.labels == 1))
    assert not head.w[1].any()
    assert torch.allclose(head.logits(features)[:, 1], SCALE * features @ found.text[1], atol=1e-5)
    learned = {"w": torch.ones_like(head.w), "alpha": torch.zeros(3)}
    assert torch.equal(head.logits(features, learned)[:, 1], head.logits(features)[:, 1])
    assert torch.equal(head.at(learned).logits(features), head.logits(features, learned))


def test_a_name_at_right_angles_to_every_image_gets_no_step():
    text = torch.eye(6)[:2]
    features = normalize(torch.tensor([[0.0, 1, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0]]), dim=1)
    head = LPP.fitted(LabelledFeatures(features, torch.tensor([0, 1]), text, logit_scale=SCALE))
    assert head.alpha[0].item() == SCALE
    assert torch.isfinite(head.w).all()
