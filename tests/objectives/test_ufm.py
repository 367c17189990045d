"""UFM and its trusted labels against closed forms, and each of their known traps."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.ufm import UFM, UNTRUSTED, trusted_labels
from atlas_engine.runtime import generator


def identity(images):
    """The images are their own logits."""
    return images


def log_probs(*probs):
    return torch.tensor(probs).log()


def two_views(weak, strong=None, **known):
    return Batch(weak, strong=weak if strong is None else strong, **known)


def test_a_target_is_the_root_of_the_probabilities_made_to_sum_to_one():
    """A constant factor would fall out of the ratio, and leave p as it is."""
    targets, _ = UFM().targets(log_probs([0.8, 0.2], [0.5, 0.5]), two_views(torch.zeros(2, 2)))
    assert targets[0].tolist() == pytest.approx([2 / 3, 1 / 3])
    assert targets[1].tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("progress", "counting"),
    [
        (0.0, [0.0, 1.0, 1.0, 1.0]),  # σ > 0.9 where p / (1 − p) > 81
        (0.5, [0.0, 0.0, 1.0, 1.0]),  # σ > 0.95 where p / (1 − p) > 361
        (0.95, [0.0, 0.0, 0.0, 1.0]),
        (1.0, [0.0, 0.0, 0.0, 0.0]),  # nothing is surer than 1
    ],
)
def test_the_confidence_asked_for_rises_to_one(progress, counting):
    odds = torch.tensor([79.0, 83.0, 365.0, 1e6])
    weak = torch.stack([odds.log(), torch.zeros(4)], dim=1)
    assert UFM().targets(weak, two_views(weak, progress=progress))[1].tolist() == counting


def test_the_loss_is_the_mean_over_the_images_that_count():
    weak = log_probs([0.999, 0.001], [0.6, 0.4], [0.3, 0.7])
    strong = torch.tensor([[1.0, 0.0], [5.0, 0.0], [0.5, 0.0]])
    labels = torch.tensor([UNTRUSTED, UNTRUSTED, 1])
    root = torch.tensor([0.999, 0.001]).sqrt()
    from_weak = cross_entropy(strong[:1], (root / root.sum())[None])
    trusted = cross_entropy(strong[2:], torch.tensor([1]))  # however unsure it is
    loss = UFM()(identity, two_views(weak, strong, labels=labels))
    assert loss.item() == pytest.approx(((from_weak + trusted) / 2).item())
    weighted = UFM()(identity, two_views(weak, strong, labels=labels, weights=torch.tensor([3.0, 9.0, 1.0])))
    assert weighted.item() == pytest.approx(((3 * from_weak + trusted) / 4).item())


def test_without_labels_no_image_is_trusted():
    weak = log_probs([0.999, 0.001], [0.6, 0.4])
    untrusted = two_views(weak, labels=torch.full((2,), UNTRUSTED))
    assert UFM()(identity, two_views(weak)) == UFM()(identity, untrusted) > 0


@pytest.mark.parametrize("weights", [None, torch.zeros(2)])
def test_where_no_image_counts_the_loss_is_zero_and_not_nan(weights):
    probs = (0.6, 0.4) if weights is None else (0.999, 0.001)
    passes = []

    def logits_fn(images):
        passes.append(len(images))
        return images

    loss = UFM()(logits_fn, two_views(log_probs(probs, probs), weights=weights))
    assert loss.item() == 0.0
    assert not loss.requires_grad
    assert passes == [2], "no image counts, so the strong view is not run"


def test_only_images_that_count_are_run_through_the_strong_view():
    seen = []

    def logits_fn(images):
        seen.append(images.clone())
        return images

    weak = log_probs([0.999, 0.001], [0.6, 0.4], [0.001, 0.999])
    UFM()(logits_fn, two_views(weak, -weak))
    assert torch.equal(seen[1], -weak[[0, 2]])


def test_the_gradient_goes_through_the_strong_view_alone():
    draw = generator(0)
    weak, strong = 4 * torch.randn(8, 3, generator=draw), torch.randn(8, 3, generator=draw)
    w = torch.randn(3, 4, generator=draw).requires_grad_()
    (grad,) = torch.autograd.grad(UFM()(lambda images: images @ w, two_views(weak, strong)), w)
    targets = (0.5 * (weak @ w).detach()).softmax(-1)
    kept = targets.amax(-1) > 0.9
    assert 0 < kept.sum() < 8
    (wanted,) = torch.autograd.grad(cross_entropy(strong[kept] @ w, targets[kept]), w)
    torch.testing.assert_close(grad, wanted)


def test_extreme_and_half_precision_logits_stay_finite():
    weak = torch.tensor([[3e4, -3e4], [0.0, 0.0]], dtype=torch.float16)
    strong = torch.tensor([[-3e4, 3e4], [0.0, 0.0]], dtype=torch.float16)
    loss = UFM()(identity, two_views(weak, strong))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(6e4, rel=1e-3)  # sure of the opposite: as many nats as logits apart


def test_a_power_of_one_is_plain_soft_labelling():
    weak = log_probs([0.95, 0.05])
    assert UFM(power=1.0).targets(weak, two_views(weak))[0][0].tolist() == pytest.approx([0.95, 0.05])
    assert UFM(power=1.0)(identity, two_views(weak)).item() == pytest.approx(
        -0.95 * math.log(0.95) - 0.05 * math.log(0.05)
    )


def test_a_missing_view_wrong_labels_and_a_wrong_threshold_are_refused():
    with pytest.raises(ConfigError, match=r"two views of each image, and Batch\(2 images\) has one"):
        UFM()(identity, Batch(torch.zeros(2, 2)))
    with pytest.raises(ConfigError, match=r"class numbers \(B\), -1 for .* shape \(2, 2\)"):
        UFM()(identity, two_views(torch.zeros(2, 2), labels=torch.eye(2)))
    with pytest.raises(ConfigError, match=r"UFM\.threshold is 1\.5"):
        UFM(threshold=1.5)


# ---- trusted labels


def random_logits(count, classes, *, seed=0):
    return 4 * torch.randn(count, classes, generator=generator(seed))


def trusted_by_hand(logits):
    """The definition, word by word."""
    count, classes = logits.shape
    most = max(1, min(int(count / classes / 10), 100))
    confidence, predicted = logits.double().softmax(-1).max(-1)
    labels = [UNTRUSTED] * count
    for label in range(classes):
        members = [row for row in range(count) if predicted[row] == label]
        for row in sorted(members, key=lambda row: -confidence[row])[:most]:
            labels[row] = label
    return labels


@pytest.mark.parametrize(
    ("count", "classes"), [(1, 2), (5, 3), (29, 3), (60, 3), (200, 4), (230, 7), (40, 1)]
)
def test_trusted_labels_are_the_definition(count, classes):
    logits = random_logits(count, classes, seed=count)
    assert trusted_labels(logits).tolist() == trusted_by_hand(logits)


def test_few_images_trust_one_of_each_predicted_class_and_not_everything():
    """⌊5 / 2 / 10⌋ is 0, and the last 0 of a list, `[-0:]`, is all of it."""
    logits = torch.tensor([[3.0, 0.0], [2.0, 0.0], [4.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    assert trusted_labels(logits).tolist() == [-1, -1, 0, -1, 1]


def test_only_the_chosen_are_trusted():
    """Flags taken from a whole sorted list would mark every image."""
    labels = trusted_labels(random_logits(400, 4))
    assert (labels != UNTRUSTED).sum() == 4 * 10
    assert labels[labels != UNTRUSTED].bincount().tolist() == [10] * 4


def test_no_class_has_more_than_a_hundred():
    labels = trusted_labels(random_logits(6000, 2))
    assert labels[labels != UNTRUSTED].bincount().tolist() == [100, 100]


def test_a_class_that_is_never_predicted_trusts_nothing():
    logits = random_logits(60, 3)
    logits[:, 1] = -50.0
    assert set(trusted_labels(logits).tolist()) == {UNTRUSTED, 0, 2}


def test_a_class_of_fewer_images_than_its_part_trusts_those():
    logits = torch.zeros(100, 2)
    logits[:, 0] = 1.0 + torch.arange(100)
    logits[7] = torch.tensor([0.0, 1.0])
    labels = trusted_labels(logits)
    assert labels[7] == 1
    assert labels[-5:].tolist() == [0] * 5
    assert (labels != UNTRUSTED).sum() == 6


def test_the_order_of_images_does_not_matter():
    logits, order = random_logits(90, 3), torch.randperm(90, generator=generator(1))
    assert torch.equal(trusted_labels(logits[order]), trusted_labels(logits)[order])


def test_the_most_confident_is_found_where_probabilities_are_rounded_to_one():
    assert torch.tensor([90.0, 0.0]).softmax(0)[0] == torch.tensor([60.0, 0.0]).softmax(0)[0] == 1.0
    assert trusted_labels(torch.tensor([[60.0, 0.0], [90.0, 0.0]])).tolist() == [UNTRUSTED, 0]


def test_of_equal_images_the_first_is_trusted():
    assert trusted_labels(torch.ones(4, 3)).tolist() == [0, -1, -1, -1]


def test_no_images_trust_nobody():
    assert trusted_labels(torch.zeros(0, 3)).tolist() == []
