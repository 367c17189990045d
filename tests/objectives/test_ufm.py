"""UFM against closed forms, and each of its known traps."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.ufm import UFM, UNTRUSTED
from atlas_engine.runtime import generator


def identity(images):
    """The images are their own logits."""
    return images


def logs(*probs):
    return torch.tensor(probs).log()


def pair(weak, strong=None, **known):
    return Batch(weak, strong=weak if strong is None else strong, **known)


def test_a_target_is_the_root_of_the_probabilities_made_to_sum_to_one():
    """A constant factor would fall out of the ratio, and leave p as it is."""
    targets, _ = UFM().targets(logs([0.8, 0.2], [0.5, 0.5]), pair(torch.zeros(2, 2)))
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
    assert UFM().targets(weak, pair(weak, progress=progress))[1].tolist() == counting


def test_the_loss_is_the_mean_over_those_that_count():
    weak = logs([0.999, 0.001], [0.6, 0.4], [0.3, 0.7])
    strong = torch.tensor([[1.0, 0.0], [5.0, 0.0], [0.5, 0.0]])
    labels = torch.tensor([UNTRUSTED, UNTRUSTED, 1])
    root = torch.tensor([0.999, 0.001]).sqrt()
    taught = cross_entropy(strong[:1], (root / root.sum())[None])  # from its weak view
    trusted = cross_entropy(strong[2:], torch.tensor([1]))  # however unsure
    loss = UFM()(identity, pair(weak, strong, labels=labels))
    assert loss.item() == pytest.approx(((taught + trusted) / 2).item())
    weighted = UFM()(identity, pair(weak, strong, labels=labels, weights=torch.tensor([3.0, 9.0, 1.0])))
    assert weighted.item() == pytest.approx(((3 * taught + trusted) / 4).item())


def test_without_labels_nobody_is_trusted():
    weak = logs([0.999, 0.001], [0.6, 0.4])
    nobody = pair(weak, labels=torch.full((2,), UNTRUSTED))
    assert UFM()(identity, pair(weak)) == UFM()(identity, nobody) > 0


@pytest.mark.parametrize("weights", [None, torch.zeros(2)])
def test_where_nothing_survives_the_loss_is_zero_and_not_nan(weights):
    probs = (0.6, 0.4) if weights is None else (0.999, 0.001)
    passes = []

    def logits_fn(images):
        passes.append(len(images))
        return images

    loss = UFM()(logits_fn, pair(logs(probs, probs), weights=weights))
    assert loss.item() == 0.0
    assert not loss.requires_grad
    assert passes == [2], "the strong view of nobody is not worth a pass"


def test_only_those_that_count_are_run_through_the_strong_view():
    seen = []

    def logits_fn(images):
        seen.append(images.clone())
        return images

    weak = logs([0.999, 0.001], [0.6, 0.4], [0.001, 0.999])
    UFM()(logits_fn, pair(weak, -weak))
    assert torch.equal(seen[1], -weak[[0, 2]])


def test_the_gradient_goes_through_the_strong_view_alone():
    draw = generator(0)
    weak, strong = 4 * torch.randn(8, 3, generator=draw), torch.randn(8, 3, generator=draw)
    w = torch.randn(3, 4, generator=draw).requires_grad_()
    (grad,) = torch.autograd.grad(UFM()(lambda images: images @ w, pair(weak, strong)), w)
    targets = (0.5 * (weak @ w).detach()).softmax(-1)
    kept = targets.amax(-1) > 0.9
    assert 0 < kept.sum() < 8
    (wanted,) = torch.autograd.grad(cross_entropy(strong[kept] @ w, targets[kept]), w)
    torch.testing.assert_close(grad, wanted)


def test_extreme_and_half_precision_logits_stay_finite():
    weak = torch.tensor([[3e4, -3e4], [0.0, 0.0]], dtype=torch.float16)
    strong = torch.tensor([[-3e4, 3e4], [0.0, 0.0]], dtype=torch.float16)
    loss = UFM()(identity, pair(weak, strong))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(6e4, rel=1e-3)  # sure of the opposite: as many nats as logits apart


def test_a_power_of_one_is_plain_soft_labelling():
    weak = logs([0.95, 0.05])
    assert UFM(power=1.0).targets(weak, pair(weak))[0][0].tolist() == pytest.approx([0.95, 0.05])
    assert UFM(power=1.0)(identity, pair(weak)).item() == pytest.approx(
        -0.95 * math.log(0.95) - 0.05 * math.log(0.05)
    )


def test_what_it_cannot_do_without_it_asks_for():
    with pytest.raises(ConfigError, match=r"two views of each image, and Batch\(2 images\) has one"):
        UFM()(identity, Batch(torch.zeros(2, 2)))
    with pytest.raises(ConfigError, match=r"class numbers \(B\), -1 for .* shape \(2, 2\)"):
        UFM()(identity, pair(torch.zeros(2, 2), labels=torch.eye(2)))
    with pytest.raises(ConfigError, match=r"UFM\.threshold is 1\.5"):
        UFM(threshold=1.5)


def test_the_parts_of_a_batch_know_how_far_the_run_is():
    batch = pair(torch.zeros(3, 2), progress=0.3)
    assert [part.progress for part in batch.split(2)] == [0.3, 0.3]
    assert batch.to("meta").progress == 0.3
    assert repr(batch) == "Batch(3 images, strong)"
