"""Selection under a budget: which vectors are used, and that the recipe rebuilds with the whole bank."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.adapt.selection import SelectedVectors, select_for_support
from atlas_engine.adapt.settings import FewShotConfig, TestTimeConfig
from atlas_engine.adapt.trainable_part import TrainablePart
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.vector import TaskVector, VectorInfo
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import ComposedEncoder, cosine_logits
from atlas_engine.data.image import Image
from atlas_engine.data.support import Support
from atlas_engine.errors import BankError, ConfigError
from atlas_engine.recipe import Recipe
from tests.drawn import COLOURS, square, write_pictures
from tests.engines import tiny_engine
from tests.task_vectors import random_bank

SHORT = FewShotConfig(steps=3, batch=4, views=1, folds=2)


@pytest.fixture(scope="module")
def bank():
    """Three random vectors; the centroid of each is an axis of the feature space."""
    plain = random_bank(dict(tiny_engine().backbone.visual.named_parameters()))
    axes = torch.eye(16)
    vectors = [
        TaskVector(name, plain.vector(name).blocks, plain.base, VectorInfo(centroid=tuple(axes[t].tolist())))
        for t, name in enumerate(plain.tasks)
    ]
    return TaskVectorBank.from_vectors(vectors)


@pytest.fixture(scope="module")
def support(tmp_path_factory):
    folder = tmp_path_factory.mktemp("support") / "set"
    return Support.from_folder(write_pictures(folder, {"red": 4, "blue": 4}))


@pytest.fixture(scope="module")
def unlabelled():
    return [Image(f"{i}.png", square(COLOURS[("red", "blue")[i % 2]], seed=i, side=40)) for i in range(12)]


@pytest.mark.parametrize("select", ["gradient", "features"])
@pytest.mark.parametrize("method", ["atlas", "atlas-iso", "atlas+text-probe", "paper"])
def test_the_recipe_of_a_budget_rebuilds_with_the_whole_bank(method, select, support, bank, tmp_path):
    engine = tiny_engine()
    config = FewShotConfig(steps=3, batch=4, views=1, lr=0.2)
    run = engine.few_shot(support, method=method, bank=bank, config=config, budget=1, select=select)
    steps = list(run)
    result = run.result()
    assert steps[0].phase == "select"
    # one vector in each block that moved, of the bank's own tasks
    assert result.coefficients.tasks == bank.tasks
    used = (
        result.coefficients.table.flatten(2).any(2)
        if result.coefficients.table.ndim > 2
        else (result.coefficients.table != 0)
    )
    assert int(used.sum(0).max()) == 1
    assert result.recipe.config["budget"] == 1
    assert result.recipe.config["select"] == select
    result.save(tmp_path / "r.atlas.safetensors")
    recipe = Recipe.load(tmp_path / "r.atlas.safetensors")
    pixels = engine.pixels(support.images)
    assert torch.equal(
        engine.logits(recipe, pixels, bank=bank), engine.logits(result.recipe, pixels, bank=bank)
    )


def test_learned_weights_of_mixed_vectors_are_those_of_the_restored_coefficients(support, bank):
    engine = tiny_engine()
    part = TrainablePart(engine.backbone, bank, share=0.5, layout=Layout(partitions=3))
    clean = part.activations(engine.pixels(support.images).float() / 255)
    text = engine.head(support.classes).clone()
    labels = torch.tensor(support.labels)
    part.use(select_for_support(part, clean, text, labels, budget=2, select="gradient"))
    composer = part.composer()
    lam = 0.3 * torch.randn(composer.shape, generator=torch.Generator().manual_seed(0))
    mixed = composer.compose(lam)
    restored = part.coefficients(lam)
    base = dict(engine.backbone.visual.named_parameters())
    whole = Composer(base, bank, restored.layout).compose(restored.values)
    for name, weights in base.items():
        # float32 sums of the same products in another order
        torch.testing.assert_close(whole[name], mixed.get(name, weights.detach()), rtol=1e-5, atol=1e-6)


def test_gradient_selection_takes_the_largest_slopes_of_each_block(support, bank):
    engine = tiny_engine()
    part = TrainablePart(engine.backbone, bank, share=1.0)
    clean = part.activations(engine.pixels(support.images).float() / 255)
    text, labels = engine.head(support.classes).clone(), torch.tensor(support.labels)
    chosen = select_for_support(part, clean, text, labels, budget=2, select="gradient")
    # ∂L/∂λ at λ = 0 by the composed encoder, another way to the same number
    encoder = ComposedEncoder(part.tower, part.composer())
    composition = encoder.at(encoder.composer.initial())
    logits = cosine_logits(composition.features(clean), text, logit_scale=engine.backbone.logit_scale)
    torch.nn.functional.cross_entropy(logits, labels).backward()
    wanted = composition.gradient().abs().topk(2, dim=0).indices
    assert torch.equal(chosen.rows, wanted)


def test_features_choose_the_data_set_that_looks_most_like_the_images(support, bank):
    engine = tiny_engine()
    part = TrainablePart(engine.backbone, bank, share=1.0)
    clean = part.activations(engine.pixels(support.images).float() / 255)
    text, labels = engine.head(support.classes).clone(), torch.tensor(support.labels)
    chosen = select_for_support(part, clean, text, labels, budget=1, select="features")
    nearest = int(part.features(clean).mean(0)[:3].argmax())  # the centroids are the first three axes
    assert chosen.bank.tasks == (bank.tasks[nearest],)
    assert chosen.rows.unique().tolist() == [nearest]


@pytest.mark.parametrize("budget", [3, 100])
def test_a_budget_of_the_whole_bank_is_the_same_as_none(budget, support, bank):
    engine = tiny_engine()
    whole = engine.few_shot(support, bank=bank, config=SHORT).result()
    run = engine.few_shot(support, bank=bank, config=SHORT, budget=budget)
    assert "select" not in {step.phase for step in run}
    assert run.result().recipe == whole.recipe


def test_auto_checks_what_it_learned_with_a_budget(support, bank):
    run = tiny_engine().few_shot(support, bank=bank, config=SHORT, budget=1)
    assert next(iter(run)).phase == "select"
    assert {estimate.method for estimate in run.result().estimates} == {
        "zero-shot",
        "text-probe",
        "atlas+text-probe",
    }


def test_a_head_alone_selects_nothing(support, bank):
    run = tiny_engine().few_shot(support, method="lpp", bank=bank, config=SHORT, budget=1)
    assert "select" not in {step.phase for step in run}


def test_images_without_labels_select_by_features(unlabelled, bank):
    engine = tiny_engine()
    config = TestTimeConfig(steps=2, epochs=0, batch=8, views=1)
    run = engine.test_time(
        unlabelled, ["red", "blue"], objective="entropy", config=config, bank=bank, budget=1
    )
    phases = [step.phase for step in run]
    assert phases[:2] == ["encode", "select"]
    recipe = run.result().recipe
    assert recipe.config["budget"] == 1
    assert int((recipe.coefficients.table != 0).sum(0).max()) <= 1


def test_without_labels_a_bank_without_centroids_is_told_what_to_do(unlabelled):
    engine = tiny_engine()
    plain = random_bank(dict(engine.backbone.visual.named_parameters()))
    run = engine.test_time(unlabelled, ["red", "blue"], objective="entropy", bank=plain, budget=1)
    with pytest.raises(BankError, match="no feature centroid of signs, flowers, garments"):
        run.result()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"budget": 0}, "budget is 0 but must be at least 1"),
        ({"budget": -2}, "budget is -2"),
        ({"budget": 1, "select": "gradients"}, "Did you mean 'gradient'"),
        ({"memory_limit": -1.0}, "memory_limit is -1.0"),
    ],
)
def test_bad_values_are_refused_before_any_work(given, sentence, support, bank):
    with pytest.raises(ConfigError, match=sentence):
        tiny_engine().few_shot(support, bank=bank, **given)


def test_restored_coefficients_stand_at_the_tasks_they_were_chosen_from(bank):
    blocks = bank.blocks
    rows = torch.tensor([[m % 3 for m in range(len(blocks))]])
    chosen = SelectedVectors(bank.select([bank.tasks[0]]), rows, bank.tasks)
    learned = Coefficients(torch.full((1, len(blocks)), 2.0), Layout(), ("mix-1",), blocks)
    table = chosen.restore(learned).table
    assert table.sum(0).tolist() == [2.0] * len(blocks)
    assert table.argmax(0).tolist() == rows[0].tolist()
