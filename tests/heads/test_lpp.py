"""LP++: it starts where it says, its loss never grows, and its curvature bounds hold."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from atlas_engine.heads.base import LabelledFeatures
from atlas_engine.heads.lpp import LPP, _BalancedLoss, descend
from tests.heads.synthetic import SCALE, make_support, take_rows

HARD = {"spread": 1.1, "text_noise": 3.0}


def test_it_starts_at_class_sums_and_the_models_scale():
    support, (features, _) = make_support((3, 3, 3))
    sums = torch.stack([support.features[support.labels == c].sum(dim=0) for c in range(3)])
    start = LPP.start(support)
    assert torch.allclose(start.w, sums, atol=1e-5)
    assert start.alpha.tolist() == [SCALE] * 3
    wanted = features @ (sums + SCALE * support.text).T
    assert torch.allclose(start.logits(features), wanted, atol=1e-4)  # logits of 20, float32


def test_unequal_counts_start_at_means_times_the_mean_count():
    support, _ = make_support((5, 1, 3))
    means = torch.stack([support.features[support.labels == c].mean(dim=0) for c in range(3)])
    assert torch.allclose(LPP.start(support).w, 3.0 * means, atol=1e-5)


@pytest.mark.parametrize("counts", [(4, 4, 4), (9, 1, 2), (1, 1), (2,) * 30])
def test_no_round_makes_the_loss_larger(counts):
    support, _ = make_support(counts, **HARD)
    losses = descend(support, iterations=60).losses
    assert (losses.diff() <= 1e-6).all()  # rounding of a float32 sum
    assert losses[-1] < 0.99 * losses[0]


def test_the_loss_is_balanced_cross_entropy():
    support, _ = make_support((5, 1, 3), **HARD)
    end = descend(support, iterations=7)
    logits = LPP.fit(support, iterations=7).logits(support.features)
    per_class = [
        cross_entropy(logits[support.labels == c], support.labels[support.labels == c]).item()
        for c in range(3)
    ]
    assert end.losses[-1].item() == pytest.approx(sum(per_class) / 3, abs=1e-5)


def test_the_steps_are_gradients_over_curvature_bounds():
    support, _ = make_support((3, 2, 4), **HARD)
    loss = _BalancedLoss(support, support.features)
    w, alpha = loss.start_w.clone().requires_grad_(), loss.start_alpha.clone().requires_grad_()
    residual, value = loss.residual(loss.visual_logits(w), alpha)
    grad_w, grad_alpha = torch.autograd.grad(value, (w, alpha))
    with torch.no_grad():
        assert torch.allclose(loss.step_w(residual) * loss.bound_w, grad_w, atol=1e-6)
        assert torch.allclose(loss.step_alpha(residual) * loss.bound_alpha, grad_alpha, atol=1e-6)


def test_the_bounds_hold_the_curvature_at_any_point():
    support, _ = make_support((3, 2, 4), **HARD)
    loss = _BalancedLoss(support, support.features)
    generator = torch.Generator().manual_seed(1)

    def value(w, alpha):
        return loss.residual(loss.visual_logits(w), alpha)[1]

    for size in (0.0, 1.0, 5.0):
        w = size * torch.randn(loss.start_w.shape, generator=generator)
        alpha = size * torch.randn(3, generator=generator)
        (of_w, _), (_, hessian_alpha) = torch.autograd.functional.hessian(value, (w, alpha))
        hessian_w = of_w.reshape(w.numel(), -1)
        assert torch.linalg.eigvalsh(hessian_w)[-1] <= loss.bound_w.item() + 1e-6
        majoriser = torch.diag(loss.bound_alpha) - hessian_alpha
        assert torch.linalg.eigvalsh(majoriser)[0] >= -1e-6


def test_working_in_the_span_of_few_features_changes_nothing():
    support, (features, _) = make_support((2, 2, 2), dim=40)  # 6 images in 40 dimensions
    loss = _BalancedLoss(support, support.features)
    w, alpha = loss.start_w, loss.start_alpha
    for _ in range(20):
        w = w - loss.step_w(loss.residual(loss.visual_logits(w), alpha)[0])
        alpha = alpha - loss.step_alpha(loss.residual(loss.visual_logits(w), alpha)[0])
    wanted = features @ (w + alpha.unsqueeze(1) * support.text).T
    assert torch.allclose(LPP.fit(support, iterations=20).logits(features), wanted, atol=1e-3)


def test_unused_rows_change_nothing():
    support, (features, _) = make_support((3, 1, 4), **HARD)
    for row in range(8):
        fold = support.without(torch.tensor([row]))
        wanted = LPP.fit(take_rows(support, torch.arange(8) != row)).logits(features)
        assert torch.allclose(LPP.fit(fold).logits(features), wanted, atol=1e-3)


def test_a_class_without_images_is_text_alone_and_stays_so():
    support, (features, _) = make_support((3, 1, 4))
    head = LPP.fit(support.without(support.labels == 1))
    assert not head.w[1].any()
    assert torch.allclose(head.logits(features)[:, 1], SCALE * features @ support.text[1], atol=1e-5)
    learned = {"w": torch.ones_like(head.w), "alpha": torch.zeros(3)}
    assert torch.equal(head.logits(features, learned)[:, 1], head.logits(features)[:, 1])
    assert torch.equal(head.at(learned).logits(features), head.logits(features, learned))


def test_a_name_orthogonal_to_every_image_gets_no_step():
    text = torch.eye(6)[:2]
    features = normalize(torch.tensor([[0.0, 1, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0]]), dim=1)
    head = LPP.fit(LabelledFeatures(features, torch.tensor([0, 1]), text, logit_scale=SCALE))
    assert head.alpha[0].item() == SCALE
    assert torch.isfinite(head.w).all()
