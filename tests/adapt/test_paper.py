"""The paper's method as published: its settings, its batches, its joint heads, its choice of an epoch."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn.functional import cross_entropy

from atlas_engine.adapt.collapse import too_few_classes
from atlas_engine.adapt.methods import FEW_SHOT_METHODS
from atlas_engine.adapt.optimise import BatchRequest
from atlas_engine.adapt.samplers import FreshViewSampler, UnlabelledSampler
from atlas_engine.adapt.settings import (
    FewShotConfig,
    FewShotRunSettings,
    TestTimeConfig,
    effective_few_shot_config,
    effective_settings,
)
from atlas_engine.adapt.streamed_activations import take_rows
from atlas_engine.adapt.unlabelled import _UnlabelledRun
from atlas_engine.compose.compose import Composer
from atlas_engine.data.augment import ResizedCrop
from atlas_engine.data.support import Support
from atlas_engine.errors import SupportError
from atlas_engine.runtime import generator
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

SHORT = FewShotConfig(epochs=1, batch=4)


@pytest.fixture(scope="module")
def support(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper") / "set"
    return Support.from_folder(write_pictures(folder, {"red": 3, "blue": 3}))


@pytest.fixture(scope="module")
def bank():
    return tiny_bank(tiny_engine().backbone.visual, size=0.5)


def test_the_settings_are_the_papers_unless_others_are_given():
    paper = FEW_SHOT_METHODS["paper"]
    own = effective_few_shot_config(FewShotConfig(), paper, images=300)
    assert (own.lr, own.weight_decay, own.batch, own.epochs) == (0.1, 0.1, 128, 10)
    assert own.micro_batch == 32, "a stop takes effect within a step of 128 images"
    assert (own.schedule, own.gradient, own.keep) == ("cosine", "normalised", "last")
    assert own.steps == 10 * 10, "ten batches an epoch at least"
    assert effective_few_shot_config(FewShotConfig(), paper, images=12_800).steps == 10 * 100
    other = effective_few_shot_config(FewShotConfig(lr=0.2, steps=7), paper, images=300)
    assert (other.lr, other.steps, other.batch) == (0.2, 7, 128)
    assert effective_settings("paper", images=300) == own


def test_a_value_that_is_given_counts_though_most_methods_have_it(support, bank):
    usual = FewShotRunSettings()
    config = FewShotConfig(lr=usual.lr, steps=usual.steps, batch=usual.batch, epochs=usual.epochs)
    run = effective_few_shot_config(config, FEW_SHOT_METHODS["paper"], images=300)
    assert (run.lr, run.steps, run.batch, run.epochs) == (0.05, 24, 16, 0)
    assert run.share == 1.0, "what was not given is the method's own"
    short = FewShotConfig(lr=usual.lr, steps=1, batch=2)
    result = tiny_engine().few_shot(support, method="paper", bank=bank, config=short).result()
    assert result.history[0].lr == usual.lr


def test_a_method_without_settings_has_the_usual_ones():
    assert effective_settings("atlas") == FewShotRunSettings()
    assert effective_settings("auto").share == FEW_SHOT_METHODS["auto"].share == 0.85


def test_one_step_is_the_formula_by_autograd(support, bank):
    """λ₁ = −lr · ĝ / (|ĝ| + ε), with g = ∂CE/∂λ by autograd through θ0 + Σ λ τ, of unit length."""
    engine = tiny_engine()
    config = FewShotConfig(steps=1, batch=6)
    run = engine.few_shot(support, method="paper", bank=bank, config=config, seed=3)
    learned = run.result().coefficients.values
    # the same batch: the sampler draws its rows and then its views from the run's own generator
    labels = torch.tensor(support.labels)
    sampler = FreshViewSampler(
        engine.pixels(support.images),
        labels[None],
        size=6,
        view=ResizedCrop(),
        to_input=engine.backbone.as_input,
    )
    batch = sampler(BatchRequest(0, 1, 0, generator(3), lambda images: images))
    base = dict(engine.backbone.visual.named_parameters())
    lam = Composer(base, bank).initial().double().requires_grad_()
    vectors = [bank.vector(name).blocks for name in bank.tasks]
    theta = {
        name: weight.double() + sum(lam[t, m] * vectors[t][name].double() for t in range(len(vectors)))
        for m, (name, weight) in enumerate((block.name, base[block.name]) for block in bank.blocks)
    }
    tower = engine.backbone.visual.double()
    try:
        features = torch.func.functional_call(tower, theta, (batch.images.double(),))
    finally:
        tower.float()
    text = engine.head(support.classes).double()
    logits = engine.backbone.logit_scale * torch.nn.functional.normalize(features, dim=-1) @ text.T
    (grad,) = torch.autograd.grad(cross_entropy(logits, batch.labels), lam)
    unit = grad / grad.norm()
    expected = -effective_settings("paper").lr * unit / (unit.abs() + 1e-8)  # AdamW's first step
    moved = expected.abs() > 0.05  # where the gradient is not lost in the rounding of float32
    assert torch.allclose(learned.double()[moved], expected[moved], atol=1e-5)
    assert moved.float().mean() > 0.9


@pytest.mark.parametrize("method", ["paper", "paper+tip", "paper+lpp"])
def test_the_method_moves_the_whole_tower_with_new_views_each_step(support, bank, method):
    result = tiny_engine().few_shot(support, method=method, bank=bank, config=SHORT).result()
    assert len(result.history) == 10
    assert result.coefficients.values.ne(0).all(), "every block has moved"
    assert result.recipe.config["epochs"] == 1


def test_validation_images_choose_the_epoch(support, bank):
    engine = tiny_engine()
    run = engine.few_shot(support, method="paper", bank=bank, config=SHORT, validation=support)
    scored = [step for step in run if step.scores is not None]
    assert [step.index for step in scored] == [0]
    named = engine.predict(support.images, support.classes).accuracy(torch.tensor(support.labels))
    assert scored[0].scores == (pytest.approx(named),)
    with pytest.raises(SupportError, match="auto holds images out by itself"):
        engine.few_shot(support, bank=bank, validation=support)
    other = dataclasses.replace(support, classes=("red", "green"))
    with pytest.raises(SupportError, match="the same classes"):
        engine.few_shot(support, method="paper", bank=bank, validation=other)


def test_without_labels_the_settings_are_the_papers(support, bank):
    engine = tiny_engine()
    config = TestTimeConfig(epochs=1)
    run = engine.test_time(support.images, support.classes, objective="paper", bank=bank, config=config)
    result = run.result()
    assert result.recipe.config["lr"] == 1e-3
    assert result.recipe.config["share"] == 1.0
    assert len(result.history) == 10


def test_without_labels_a_published_method_is_not_rolled_back(support, bank):
    """At a rate this high the answers crowd into one class, by which every other method keeps zero-shot."""
    images, classes = support.images, ("red", "blue", "green", "grey", "white", "black")
    config = TestTimeConfig(epochs=1, lr=5.0)
    run = tiny_engine().test_time(images, classes, objective="paper", bank=bank, config=config)
    result = run.result()
    assert result.verdict.kept == "paper"
    assert result.coefficients.values.any()
    named = tiny_engine().logits(result.recipe, tiny_engine().pixels(images), bank=bank)
    assert too_few_classes(named), "the check that the other methods have would have rolled it back"


def views_of(engine, support, bank, *, objective):
    """A run of this method, and the views that it looks at."""
    context = engine._unlabelled_context(engine.pixels(support.images), support.classes, bank=bank)
    run = _UnlabelledRun(context, method=objective, config=TestTimeConfig(), seed=0, stop=None)
    looking = run.make_views(run.clean_activations())
    while True:
        try:
            next(looking)
        except StopIteration as end:
            return run, end.value


def test_without_labels_the_weak_view_is_the_plain_image_and_strong_ones_are_new(support, bank):
    engine = tiny_engine()
    plain = engine.backbone.as_input(engine.pixels(support.images).float() / 255)
    run, views = views_of(engine, support, bank, objective="paper")
    assert views.weak is None
    assert torch.equal(take_rows(views.clean, torch.arange(6)), plain), "the whole tower moves"
    # each batch of a run has the plain images, in some order, with a strong view of each drawn anew
    sampler = UnlabelledSampler(views, size=6, strong_views=run.draw_strong_views)
    random, seen = generator(0), []
    for index in range(2):
        batch = sampler(BatchRequest(index, 2, 0, random, lambda images: images))
        rows = [next(row for row in range(6) if torch.equal(plain[row], image)) for image in batch.images]
        assert sorted(rows) == list(range(6))
        assert not any(torch.equal(one, plain[row]) for one, row in zip(batch.strong, rows, strict=True))
        seen.append(dict(zip(rows, batch.strong, strict=True)))
    assert not any(torch.equal(seen[0][row], seen[1][row]) for row in range(6))
    # our own variant of UFM makes weak views instead
    _, own = views_of(engine, support, bank, objective="ufm")
    assert not torch.equal(own.weak[0], own.clean)


@pytest.mark.parametrize("labelled", [True, False])
def test_the_time_left_is_that_of_the_steps_alone(support, bank, labelled):
    engine = tiny_engine()
    if labelled:
        run = engine.few_shot(support, method="paper", bank=bank, config=SHORT)
    else:
        config = TestTimeConfig(epochs=1)
        run = engine.test_time(support.images, support.classes, objective="paper", bank=bank, config=config)
    shares = [step.share for step in run if step.phase == "learn"]
    assert shares == pytest.approx([(index + 1) / 10 for index in range(10)])


def test_crops_have_at_least_half_of_the_image_and_stay_in_range():
    ramp = torch.arange(64, dtype=torch.uint8).mul(4).repeat(64, 1).expand(200, 3, 64, 64)
    views = ResizedCrop()(ramp, generator(0))
    assert views.min() >= 0
    assert views.max() <= 1
    spans = (views[:, 0].amax(dim=(1, 2)) - views[:, 0].amin(dim=(1, 2))) * 255 / 252  # width as a share
    assert spans.min() > (0.5 * 3 / 4) ** 0.5 - 0.05  # bicubic interpolation rounds at the borders
    mirrored = (views[:, 0, 0, -1] < views[:, 0, 0, 0]).float().mean()
    assert 0.4 < mirrored < 0.6
