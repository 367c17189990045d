"""The loop: it learns, it repeats itself bit for bit, and every way to end leaves a clear state."""

from __future__ import annotations

import math
import threading

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from atlas_engine.adapt.optimise import OptimiseConfig, optimise
from atlas_engine.adapt.trainable import LAM, TrainableCoefficients
from atlas_engine.compose.encoder import cosine_logits
from atlas_engine.errors import ConfigError
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.entropy import Entropy
from atlas_engine.objectives.sar import SAR
from atlas_engine.objectives.simclr import SimCLR
from atlas_engine.objectives.supervised import CrossEntropy
from atlas_engine.objectives.ufm import UFM
from atlas_engine.result import Outcome
from tests.tiny import TOWERS, drain, tiny_clip, tiny_encoder, tiny_head, tiny_images

CE = CrossEntropy()


class Spread:
    """A loss that couples its images: minus the entropy of the mean prediction, plus cross-entropy."""

    additive = False

    def __call__(self, logits_fn, batch):
        logits = logits_fn(batch.images)
        mean = logits.softmax(-1).mean(0)
        return (mean * mean.log()).sum() + cross_entropy(logits, batch.labels)


class Scripted:
    """Cross-entropy times a factor that depends on how often it was called."""

    additive = True

    def __init__(self, factor):
        self.factor, self.calls = factor, 0

    def __call__(self, logits_fn, batch):
        self.calls += 1
        return CE(logits_fn, batch) * self.factor(self.calls)


def test_it_learns_and_tells_each_step(classifier, cloud):
    steps, ending = drain(optimise(classifier(), CE, cloud(), config=OptimiseConfig(steps=40)))
    assert [step.index for step in steps] == list(range(40))
    assert {step.of for step in steps} == {40}
    assert steps[0].loss == pytest.approx(math.log(2))
    assert steps[-1].loss < 0.5 * steps[0].loss
    assert steps[0].lr == 0.1
    assert steps[20].lr == pytest.approx(0.05)
    assert [s.seconds for s in steps] == sorted(s.seconds for s in steps)
    assert ending.outcome is Outcome.finished
    assert ending.reason == "all 40 steps were taken."
    assert ending.steps == 40
    assert ending.diverged == (False,)


def test_no_steps_give_back_the_start(classifier, cloud):
    steps, ending = drain(optimise(classifier(), CE, cloud(), config=OptimiseConfig(steps=0)))
    assert not steps
    assert not ending.values["w"].any()


def test_a_step_shows_the_values_that_its_loss_was_measured_at(classifier, cloud):
    steps, ending = drain(optimise(classifier(), CE, cloud(), config=OptimiseConfig(steps=3)))
    assert not steps[0].snapshot()["w"].any()
    assert steps[1].snapshot()["w"].any()
    assert not torch.equal(steps[2].snapshot()["w"], ending.values["w"])
    assert steps[0].record().snapshot() == {}


@pytest.mark.parametrize("gradient", ["normalised", "plain"])
def test_the_gradient_is_of_unit_length_or_as_it_is(classifier, cloud, gradient):
    config = OptimiseConfig(steps=2, gradient=gradient, weight_decay=0.0, schedule="constant")
    subject = classifier()
    (first, second), _ = drain(optimise(subject, CE, cloud(), config=config))
    reference = torch.zeros(1, 3, 2, requires_grad=True)
    optimiser = torch.optim.AdamW([reference], lr=0.1, weight_decay=0.0)
    draw = torch.Generator().manual_seed(0)
    points = torch.randn(8, 3, generator=draw)
    cross_entropy(points @ reference[0], (points[:, 0] > 0).long()).backward()
    assert first.grad_norm == pytest.approx(reference.grad.norm().item())
    if gradient == "normalised":
        reference.grad /= reference.grad.norm()
    optimiser.step()
    assert torch.allclose(second.snapshot()["w"], reference.detach(), atol=1e-6)


def test_the_same_call_gives_the_same_answer_bit_for_bit_and_another_seed_another(classifier, cloud):
    def run(seed):
        return drain(optimise(classifier(), CE, cloud(), config=OptimiseConfig(steps=10), seeds=[seed]))

    (steps, ending), (again, ending_again), (_, other) = run(3), run(3), run(4)
    assert [s.losses for s in steps] == [s.losses for s in again]
    assert torch.equal(ending.values["w"], ending_again.values["w"])
    assert not torch.equal(ending.values["w"], other.values["w"])


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_learns_the_same_for_a_caller_who_has_switched_gradients_off(classifier, cloud, mode):
    _, wanted = drain(optimise(classifier(), CE, cloud(), config=OptimiseConfig(steps=3)))
    with mode():
        _, ending = drain(optimise(classifier(), CE, cloud(), config=OptimiseConfig(steps=3)))
    assert torch.equal(ending.values["w"], wanted.values["w"])
    assert not ending.values["w"].is_inference()


def test_the_global_random_state_is_not_touched(classifier, cloud):
    before = torch.get_rng_state()
    drain(optimise(classifier(), CE, cloud(), config=OptimiseConfig(steps=3)))
    assert torch.equal(before, torch.get_rng_state())


def test_several_runs_are_the_same_runs_one_by_one(classifier, cloud):
    config = OptimiseConfig(steps=10, keep="best")
    steps, together = drain(optimise(classifier(3), CE, cloud(), config=config, seeds=[5, 6, 7]))
    for run, seed in enumerate((5, 6, 7)):
        alone_steps, alone = drain(optimise(classifier(), CE, cloud(), config=config, seeds=[seed]))
        assert [s.losses[run] for s in steps] == [s.loss for s in alone_steps]
        assert torch.equal(together.values["w"][run], alone.values["w"][0])


def test_runs_and_seeds_must_be_as_many(classifier, cloud):
    with pytest.raises(ConfigError, match="2 runs start but there are 3 seeds"):
        next(optimise(classifier(2), CE, cloud(), config=OptimiseConfig(), seeds=[0, 1, 2]))


@pytest.mark.parametrize("objective", [CE, Spread()])
@pytest.mark.parametrize("micro_batch", [1, 3, 8])
def test_micro_batches_change_nothing_but_rounding(classifier, cloud, objective, micro_batch):
    whole = drain(optimise(classifier(), objective, cloud(), config=OptimiseConfig(steps=5)))
    parts = drain(
        optimise(classifier(), objective, cloud(), config=OptimiseConfig(steps=5, micro_batch=micro_batch))
    )
    for a, b in zip(whole[0], parts[0], strict=True):
        assert a.loss == pytest.approx(b.loss, rel=1e-5)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-4)
    assert torch.allclose(whole[1].values["w"], parts[1].values["w"], atol=1e-4)


def test_micro_batches_respect_weights_and_a_batch_of_no_weight_teaches_nothing(classifier):
    points = torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])
    weights = torch.tensor([3.0, 1.0, 0.0])

    def source(request, weights=weights):
        return Batch(points, torch.tensor([0, 1, 1]), weights)

    (whole,), _ = drain(optimise(classifier(), CE, source, config=OptimiseConfig(steps=1)))
    (parts,), _ = drain(optimise(classifier(), CE, source, config=OptimiseConfig(steps=1, micro_batch=1)))
    assert whole.grad_norm == pytest.approx(parts.grad_norm)
    nothing = [
        drain(
            optimise(
                classifier(),
                CE,
                lambda r: source(r, 0 * weights),
                config=OptimiseConfig(steps=3, micro_batch=size),
            )
        )
        for size in (None, 1)
    ]
    for steps, ending in nothing:
        assert [s.loss for s in steps] == [0.0] * 3
        assert not ending.values["w"].any()


def test_a_loss_without_a_graph_teaches_nothing_and_is_no_error(classifier, cloud):
    class Silent:
        additive = True

        def __call__(self, logits_fn, batch):
            return torch.zeros(())

    steps, ending = drain(optimise(classifier(), Silent(), cloud(), config=OptimiseConfig(steps=2)))
    assert [s.grad_norm for s in steps] == [0.0, 0.0]
    assert ending.outcome is Outcome.finished


def test_cancel_keeps_what_was_learned(classifier, cloud):
    stop = threading.Event()
    loop = optimise(classifier(), CE, cloud(), config=OptimiseConfig(steps=50), stop=stop)
    for _ in range(3):
        next(loop)
    stop.set()
    steps, ending = drain(loop)
    assert not steps
    assert ending.outcome is Outcome.cancelled
    assert ending.steps == 3
    assert ending.values["w"].any()
    assert "cancelled" in ending.reason


@pytest.mark.parametrize("objective", [CE, Spread()])
def test_cancel_waits_for_one_micro_batch_at_most(classifier, cloud, objective):
    subject, stop = classifier(), threading.Event()
    loop = optimise(subject, objective, cloud(8), config=OptimiseConfig(steps=50, micro_batch=1), stop=stop)
    next(loop)
    before = subject.forwards

    class AfterTwo:
        def is_set(self):
            return subject.forwards >= 2

    fresh = classifier()
    subject = fresh
    loop = optimise(
        fresh, objective, cloud(8), config=OptimiseConfig(steps=50, micro_batch=1), stop=AfterTwo()
    )
    steps, ending = drain(loop)
    assert before >= 8, "a step takes eight micro-batches"
    assert not steps
    assert fresh.forwards == 2
    assert ending.outcome is Outcome.cancelled
    assert not ending.values["w"].any(), "half a step leaves no trace"


def test_a_deadline_ends_the_run(classifier, cloud):
    ticks = iter(range(1000))
    config = OptimiseConfig(steps=50, deadline_seconds=20.0)
    steps, ending = drain(
        optimise(classifier(), CE, cloud(), config=config, clock=lambda: float(next(ticks)))
    )
    assert 0 < len(steps) < 20
    assert ending.outcome is Outcome.deadline
    assert ending.reason.startswith("the time of 20 s was over")
    assert ending.values["w"].any()


def test_a_deadline_of_zero_gives_back_the_start(classifier, cloud):
    steps, ending = drain(optimise(classifier(), CE, cloud(), config=OptimiseConfig(deadline_seconds=0.0)))
    assert not steps
    assert ending.outcome is Outcome.deadline
    assert not ending.values["w"].any()


@pytest.mark.parametrize(
    ("factor", "sentence"),
    [
        (lambda call: math.nan if call == 6 else 1.0, "the loss became nan at step 5"),
        (lambda call: math.inf if call == 6 else 1.0, "the loss became inf at step 5"),
        (lambda call: 1e3 if call == 6 else 1.0, "the loss grew from 0.693 to"),
    ],
)
def test_a_loss_gone_wrong_ends_the_run_with_the_best_values_before_it(classifier, cloud, factor, sentence):
    steps, ending = drain(optimise(classifier(), Scripted(factor), cloud(), config=OptimiseConfig(steps=20)))
    assert len(steps) == 5
    assert ending.outcome is Outcome.diverged
    assert sentence in ending.reason
    assert "Try a smaller learning rate (now 0.1)." in ending.reason
    best = min(steps, key=lambda step: step.loss)
    assert torch.equal(ending.values["w"], best.snapshot()["w"])


def test_a_gradient_that_is_not_finite_ends_the_run_too(classifier, cloud):
    class Cliff:
        additive = True

        def __call__(self, logits_fn, batch):
            return logits_fn(batch.images).abs().sum().sqrt()  # at zero: the loss is 0, its slope infinite

    steps, ending = drain(optimise(classifier(), Cliff(), cloud(), config=OptimiseConfig(steps=5)))
    assert not steps
    assert ending.outcome is Outcome.diverged
    assert "the gradient was not finite at step 0" in ending.reason
    assert not ending.values["w"].any()


def test_a_diverged_run_leaves_its_neighbours_alone(classifier, cloud):
    class OneBad:
        additive = True
        calls = 0

        def __call__(self, logits_fn, batch):
            self.calls += 1
            return CE(logits_fn, batch) * (math.nan if self.calls == 4 else 1.0)  # run 1 of step 1

    config = OptimiseConfig(steps=10)
    steps, ending = drain(optimise(classifier(2), OneBad(), cloud(), config=config, seeds=[5, 6]))
    _, alone = drain(optimise(classifier(), CE, cloud(), config=config, seeds=[5]))
    assert ending.outcome is Outcome.finished
    assert ending.diverged == (False, True)
    assert ending.reason.startswith("1 of 2 runs diverged: the loss became nan at step 1")
    assert torch.equal(ending.values["w"][0], alone.values["w"][0])
    assert torch.isfinite(ending.values["w"]).all()
    assert torch.isfinite(steps[-1].snapshot()["w"]).all(), "a run that is over stands still"
    assert math.isnan(steps[-1].losses[1])
    assert math.isfinite(steps[-1].loss)


def test_the_best_values_are_those_of_the_highest_score(classifier, cloud):
    given = iter([0.1, 0.9, 0.5, 0.2])
    config = OptimiseConfig(steps=6, score_every=2, keep="best")
    steps, ending = drain(optimise(classifier(), CE, cloud(), config=config, score=lambda _: [next(given)]))
    assert [s.scores for s in steps] == [(0.1,), None, (0.9,), None, (0.5,), None]
    assert ending.best_scores == (0.9,)
    assert torch.equal(ending.values["w"], steps[2].snapshot()["w"])


def test_the_values_after_the_last_step_are_scored_too(classifier, cloud):
    given = iter([0.1, 0.2])
    config = OptimiseConfig(steps=3, score_every=3, keep="best")
    best = drain(optimise(classifier(), CE, cloud(), config=config, score=lambda _: [next(given)]))[1]
    last = drain(optimise(classifier(), CE, cloud(), config=OptimiseConfig(steps=3)))[1]
    assert torch.equal(best.values["w"], last.values["w"])


def test_a_tie_keeps_the_start(classifier, cloud):
    config = OptimiseConfig(steps=3, score_every=1, keep="best")
    _, ending = drain(optimise(classifier(), CE, cloud(), config=config, score=lambda _: [0.5]))
    assert not ending.values["w"].any()


def test_a_score_sees_the_model_as_it_stands(classifier, cloud):
    seen = []

    def score(forward):
        seen.append(forward.logits_fn(0)(torch.eye(3)))
        return [0.0]

    steps, _ = drain(
        optimise(classifier(), CE, cloud(), config=OptimiseConfig(steps=2, score_every=1), score=score)
    )
    assert torch.equal(seen[1], steps[1].snapshot()["w"][0])
    assert not seen[1].requires_grad


def test_a_source_may_look_at_the_model(classifier):
    seen = []

    def source(request):
        seen.append((request.index, request.of, request.run, request.logits_fn(torch.eye(3))))
        return Batch(torch.eye(3), torch.tensor([0, 1, 0]))

    drain(optimise(classifier(), CE, source, config=OptimiseConfig(steps=2)))
    assert [entry[:3] for entry in seen] == [(0, 2, 0), (1, 2, 0)]
    assert seen[1][3].any()
    assert not seen[1][3].requires_grad


@pytest.mark.parametrize("tower", TOWERS)
def test_coefficients_of_a_real_tower_are_learned_from_exactly_zero_shot(tower):
    encoder, head = tiny_encoder(tower), tiny_head()
    images, labels = tiny_images(), torch.tensor([0, 1, 2, 3, 0, 1])
    subject = TrainableCoefficients(encoder, head, logit_scale=10.0, start=encoder.composer.initial()[None])

    def run(micro_batch=None):
        config = OptimiseConfig(steps=12, micro_batch=micro_batch)
        return drain(optimise(subject, CE, lambda _: Batch(images, labels), config=config))

    features = normalize(tiny_clip(tower).visual(images), dim=-1)
    zero_shot = cross_entropy(cosine_logits(features, head, logit_scale=10.0), labels)
    steps, ending = run()
    assert steps[0].loss == pytest.approx(zero_shot.item(), rel=1e-6)  # same weights, other addresses
    assert steps[-1].loss < 0.9 * steps[0].loss
    again, ending_again = run()
    assert [s.losses for s in again] == [s.losses for s in steps]
    assert torch.equal(ending.values[LAM], ending_again.values[LAM])
    parts, _ = run(micro_batch=4)
    # Rounding grows step by step, since AdamW divides by the size of small gradients.
    assert parts[1].loss == pytest.approx(steps[1].loss, rel=1e-3)


UNSUPERVISED = [UFM(threshold=0.6), Entropy(), SAR(reliable=0.99), SimCLR()]


def two_views(request):
    """The same eight points at every step, each in two views; two of them are trusted."""
    draw = torch.Generator().manual_seed(0)
    points, labels = torch.randn(8, 3, generator=draw), torch.tensor([0, 1] + [-1] * 6)
    return Batch(points, labels, strong=points + 0.1 * torch.randn(8, 3, generator=draw))


def tilted(classifier):
    subject = classifier()
    subject.start[0] = torch.tensor([[2.0, 0.0], [1.0, 1.0], [-0.5, 2.0]])  # a model that has an opinion
    return subject


@pytest.mark.parametrize("objective", UNSUPERVISED, ids=lambda one: type(one).__name__)
def test_objectives_without_labels_learn_and_may_be_taken_in_parts(classifier, objective):
    def run(micro_batch):
        config = OptimiseConfig(steps=20, lr=0.05, weight_decay=0.0, micro_batch=micro_batch, sharpness=0.05)
        return drain(optimise(tilted(classifier), objective, two_views, config=config))

    (whole, ending), (parts, _) = run(None), run(3)
    assert ending.outcome is Outcome.finished
    assert whole[-1].loss < whole[0].loss - 0.05
    for a, b in zip(whole[:5], parts[:5], strict=True):  # rounding grows later on
        assert a.loss == pytest.approx(b.loss, rel=1e-4)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-3)


def test_a_sharp_step_takes_its_gradient_uphill_of_the_values(classifier, cloud):
    config = OptimiseConfig(
        steps=2, gradient="plain", weight_decay=0.0, schedule="constant", lr=0.1, sharpness=0.5
    )
    (first, second), _ = drain(optimise(tilted(classifier), CE, cloud(), config=config))
    points = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    labels = (points[:, 0] > 0).long()
    value = tilted(classifier).start.clone().requires_grad_()
    loss = cross_entropy(points @ value[0], labels)
    (flat,) = torch.autograd.grad(loss, value)
    uphill = (value + 0.5 * flat / flat.norm()).detach().requires_grad_()
    (sharp,) = torch.autograd.grad(cross_entropy(points @ uphill[0], labels), uphill)
    reference = value.detach().clone().requires_grad_()
    optimiser = torch.optim.AdamW([reference], lr=0.1, weight_decay=0.0)
    assert not torch.allclose(sharp / sharp.norm(), flat / flat.norm(), atol=1e-2)
    reference.grad = sharp
    optimiser.step()
    assert torch.allclose(second.snapshot()["w"], reference.detach(), atol=1e-6)
    assert first.loss == pytest.approx(loss.item()), "what a step reports is measured at its values"
    assert first.grad_norm == pytest.approx(flat.norm().item())


def test_a_sharp_step_asks_its_source_once(classifier, cloud):
    source, objective = cloud(), Scripted(lambda call: 1.0)
    drain(
        optimise(
            classifier(2), objective, source, config=OptimiseConfig(steps=3, sharpness=0.1), seeds=[0, 1]
        )
    )
    assert len(source.requests) == 3 * 2
    assert objective.calls == 3 * 2 * 2


def test_several_sharp_runs_are_the_same_runs_one_by_one(classifier, cloud):
    config = OptimiseConfig(steps=6, sharpness=0.2)
    _, together = drain(optimise(classifier(3), CE, cloud(), config=config, seeds=[5, 6, 7]))
    for run, seed in enumerate((5, 6, 7)):
        _, alone = drain(optimise(classifier(), CE, cloud(), config=config, seeds=[seed]))
        assert torch.equal(together.values["w"][run], alone.values["w"][0])


def test_where_there_is_no_slope_uphill_is_where_one_stands(classifier, cloud):
    def nothing(request):
        return Batch(torch.ones(2, 3), torch.tensor([0, 1]), torch.zeros(2))

    _, ending = drain(optimise(classifier(), CE, nothing, config=OptimiseConfig(steps=3, sharpness=0.1)))
    assert ending.outcome is Outcome.finished
    assert not ending.values["w"].any()


def test_a_run_that_goes_wrong_uphill_ends_with_the_best_values_before_it(classifier, cloud):
    objective = Scripted(lambda call: math.nan if call == 6 else 1.0)  # the second pass of step 2
    config = OptimiseConfig(steps=20, sharpness=0.1)
    steps, ending = drain(optimise(classifier(), objective, cloud(), config=config))
    assert len(steps) == 2
    assert ending.outcome is Outcome.diverged
    assert "the loss became nan at step 2" in ending.reason
    assert torch.isfinite(ending.values["w"]).all()


def test_sharp_steps_learn_the_coefficients_of_a_real_tower():
    encoder, head = tiny_encoder(), tiny_head()
    batch = Batch(tiny_images(), torch.tensor([0, 1, 2, 3, 0, 1]))
    subject = TrainableCoefficients(encoder, head, logit_scale=10.0, start=encoder.composer.initial()[None])
    config = OptimiseConfig(steps=8, sharpness=0.05)
    steps, _ = drain(optimise(subject, CE, lambda _: batch, config=config))
    plain, _ = drain(optimise(subject, CE, lambda _: batch, config=OptimiseConfig(steps=8)))
    assert steps[0].loss == plain[0].loss
    assert steps[-1].loss < 0.9 * steps[0].loss
    assert steps[-1].loss != plain[-1].loss


class Falling:
    """A loss of given height at each call, with the slope of cross-entropy; None finds nothing to learn."""

    additive = True

    def __init__(self, heights):
        self.heights = iter(heights)

    def __call__(self, logits_fn, batch):
        height, loss = next(self.heights), CE(logits_fn, batch)
        return torch.zeros(()) if height is None else loss - loss.detach() + height


@pytest.mark.parametrize("keep", ["last", "best"])
def test_a_collapsed_run_goes_back_to_where_it_began(classifier, cloud, keep):
    objective = Falling([1.0, 0.0, 0.0, -1.0, -1.0])  # smoothed: 1, 0.9, 0.81, 0.63, 0.47
    config = OptimiseConfig(steps=20, keep=keep, collapse_below=0.5)
    subject = tilted(classifier)
    steps, ending = drain(optimise(subject, objective, cloud(), config=config))
    assert len(steps) == 4
    assert ending.outcome is Outcome.diverged
    assert ending.collapsed == (True,)
    assert ending.diverged == (False,)
    assert ending.reason.startswith("the smoothed loss was 0.466, below 0.5, at step 4: a sign of collapse")
    assert torch.equal(ending.values["w"], subject.start)
    assert not torch.equal(steps[-1].snapshot()["w"], subject.start)


def test_steps_that_find_nothing_to_learn_from_are_no_collapse(classifier, cloud):
    config = OptimiseConfig(steps=6, collapse_below=0.2)
    objective = Falling([None, None, 1.0, None, None, 0.9])
    _, ending = drain(optimise(classifier(), objective, cloud(), config=config))
    assert ending.outcome is Outcome.finished
    assert ending.collapsed == (False,)
    assert ending.values["w"].any()


def test_a_run_that_is_sure_from_the_start_has_not_collapsed_unless_its_loss_halves(classifier, cloud):
    config = OptimiseConfig(steps=4, collapse_below=0.2)
    _, calm = drain(optimise(classifier(), Falling([0.1] * 4), cloud(), config=config))
    assert calm.collapsed == (False,)
    assert calm.values["w"].any()
    _, fell = drain(optimise(classifier(), Falling([0.1, -0.5, -0.5, -0.5]), cloud(), config=config))
    assert fell.collapsed == (True,)
    assert "below 0.05" in fell.reason


def test_a_collapsed_run_leaves_its_neighbours_alone(classifier, cloud):
    config = OptimiseConfig(steps=4, collapse_below=0.5)
    heights = [1.0, 1.0, -5.0, 1.0, 1.0, 1.0]  # run 0 and run 1 by turns; after its second step run 0 is over
    _, ending = drain(optimise(classifier(2), Falling(heights), cloud(), config=config, seeds=[5, 6]))
    _, alone = drain(optimise(classifier(), Falling([1.0] * 4), cloud(), config=config, seeds=[6]))
    assert ending.outcome is Outcome.finished
    assert ending.collapsed == (True, False)
    assert ending.reason.startswith("1 of 2 runs collapsed: ")
    assert not ending.values["w"][0].any()
    assert torch.equal(ending.values["w"][1], alone.values["w"][0])
