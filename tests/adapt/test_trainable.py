"""A tower and a head learn together; runs stay strangers; what was learned goes through a recipe."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from atlas_engine.adapt.optimise import OptimiseConfig, optimise
from atlas_engine.adapt.trainable import HEAD, LAM, TrainableCoefficients, TrainableWithHeads
from atlas_engine.errors import ConfigError
from atlas_engine.heads.base import LabelledFeatures
from atlas_engine.heads.registry import HEADS
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.supervised import CrossEntropy
from tests.tiny import drain, tiny_clip, tiny_encoder, tiny_head, tiny_images, tiny_lam

SCALE = 10.0
CE = CrossEntropy()
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 3])
IMAGES = tiny_images(9)


@pytest.fixture(scope="module")
def evidence():
    with torch.no_grad():
        features = normalize(tiny_clip().visual(IMAGES), dim=-1)
    return LabelledFeatures(features, LABELS, tiny_head(4), logit_scale=SCALE)


@pytest.fixture(params=list(HEADS))
def row(request):
    return HEADS[request.param]


def everything(request):
    return Batch(IMAGES, LABELS)


def subject_of(heads, *, start=None):
    encoder = tiny_encoder()
    lam = torch.zeros(len(heads), *encoder.composer.shape) if start is None else start
    return TrainableWithHeads(encoder, heads, start=lam)


def test_tower_and_head_learn_together(row, evidence):
    subject = subject_of([row.initialise(evidence)])
    steps, ending = drain(optimise(subject, CE, everything, config=OptimiseConfig(steps=12)))
    assert steps[-1].loss < 0.95 * steps[0].loss
    starts = subject.tensors_to_learn
    assert starts.keys() == {LAM, *(HEAD + name for name in row.initialise(evidence).rates)}
    for name, value in ending.values.items():
        assert not torch.equal(value, starts[name].start), f"{name} did not move"


def test_at_its_start_it_gives_the_heads_logits_on_zero_shot_features(row, evidence):
    head = row.initialise(evidence)
    subject = subject_of([head])
    values = {name: one.start for name, one in subject.tensors_to_learn.items()}
    logits = subject.at(values).logits_fn(0)(IMAGES)
    assert torch.allclose(logits, head.logits(evidence.features), atol=1e-4)  # logits of 10, two layers


def test_without_a_head_it_is_the_composed_tower_alone(evidence):
    encoder = tiny_encoder()
    start = torch.zeros(1, *encoder.composer.shape)
    plain = TrainableCoefficients(encoder, tiny_head(4), logit_scale=SCALE, start=start)
    _, wanted = drain(optimise(plain, CE, everything, config=OptimiseConfig(steps=3)))
    _, ending = drain(
        optimise(
            subject_of([HEADS["none"].initialise(evidence)]), CE, everything, config=OptimiseConfig(steps=3)
        )
    )
    assert torch.allclose(ending.values[LAM], wanted.values[LAM], atol=1e-6)


def test_gradients_are_those_of_autograd_through_the_head(row, evidence):
    heads = [row.initialise(evidence)]
    subject = subject_of(heads, start=tiny_lam(tiny_encoder(), runs=1))
    values = {name: one.start for name, one in subject.tensors_to_learn.items()}
    forward = subject.at(values)
    for part in (slice(0, 4), slice(4, 9)):  # two micro-batches add up
        cross_entropy(forward.logits_fn(0)(IMAGES[part]), LABELS[part], reduction="sum").backward()
    grads = forward.gradients()
    assert grads.keys() == values.keys()
    features = subject.at(values)._composition.features(IMAGES).detach()
    leaves = {n: heads[0].tensors[n].clone().requires_grad_() for n in heads[0].rates}
    features.requires_grad_()  # so that a head with nothing to learn has a graph as well
    cross_entropy(heads[0].logits(features, leaves), LABELS, reduction="sum").backward()
    for name, leaf in leaves.items():
        assert torch.allclose(grads[HEAD + name][0], leaf.grad, atol=1e-4), name


def test_the_slope_of_the_coefficients_goes_through_the_head(evidence):
    head = HEADS["tip"].initialise(evidence)
    encoder = tiny_encoder()
    subject = TrainableWithHeads(encoder, [head], start=tiny_lam(encoder, runs=1))
    values = {name: one.start for name, one in subject.tensors_to_learn.items()}

    def loss(lam):
        return cross_entropy(subject.at(values | {LAM: lam}).logits_fn(0)(IMAGES), LABELS)

    forward = subject.at(values)
    cross_entropy(forward.logits_fn(0)(IMAGES), LABELS).backward()
    grad = forward.gradients()[LAM]
    direction = torch.randn(grad.shape, generator=torch.Generator().manual_seed(0))
    slope = (loss(values[LAM] + 1e-3 * direction) - loss(values[LAM] - 1e-3 * direction)) / 2e-3
    # central differences in float32: 1e-7 of a loss near 1, over 2e-3
    assert (grad * direction).sum().item() == pytest.approx(slope.item(), rel=2e-2, abs=2e-3)


def test_three_runs_at_once_are_three_runs_one_by_one(row, evidence):
    folds = [evidence.without(torch.tensor([number, number + 3])) for number in range(3)]
    heads = [row.initialise(fold) for fold in folds]
    config = OptimiseConfig(steps=4)

    def own(request):
        return Batch(IMAGES, LABELS).to("cpu") if request.run == 0 else Batch(IMAGES[:6], LABELS[:6])

    def shifted(run):
        return lambda request: own(type(request)(request.index, request.of, run, request.generator, None))

    _, together = drain(optimise(subject_of(heads), CE, own, config=config, seeds=(0, 1, 2)))
    for run in range(3):
        _, alone = drain(optimise(subject_of([heads[run]]), CE, shifted(run), config=config, seeds=(run,)))
        for name, value in alone.values.items():
            # batched products add in another order, and AdamW divides by roots of small squares
            assert torch.allclose(together.values[name][run], value[0], atol=2e-3), name


def test_what_was_learned_is_a_head_of_its_own(row, evidence):
    subject = subject_of([row.initialise(evidence)] * 2)
    _, ending = drain(optimise(subject, CE, everything, config=OptimiseConfig(steps=2), seeds=(0, 1)))
    head = subject.head(ending.values, run=1)
    again = row.rebuild(head.tensors, evidence.text, logit_scale=SCALE)
    logits = subject.at(ending.values).logits_fn(1)(IMAGES)
    features = subject.at(ending.values)._composition.features(IMAGES, run=1)
    assert torch.equal(again.logits(features), head.logits(features))
    assert torch.allclose(again.logits(features), logits, atol=1e-5)


def test_runs_and_heads_must_go_together(evidence):
    tip, lpp = HEADS["tip"].initialise(evidence), HEADS["lpp"].initialise(evidence)
    shape = tiny_encoder().composer.shape
    with pytest.raises(ConfigError, match="2 runs start with 1 heads"):
        TrainableWithHeads(tiny_encoder(), [tip], start=torch.zeros(2, *shape))
    with pytest.raises(ConfigError, match="several kinds or sizes"):
        TrainableWithHeads(tiny_encoder(), [tip, lpp], start=torch.zeros(2, *shape))
