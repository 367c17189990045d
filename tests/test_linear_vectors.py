"""Linear vectors from their training to an answer: always on the tower's tangent, and never as weights."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import normalize

from app.handlers.takeaway import save_weights
from atlas_engine.adapt.arithmetic.config import AddConfig
from atlas_engine.adapt.arithmetic.training import WholeTower
from atlas_engine.adapt.context import AdaptContext, TaskData
from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.adapt.trainable import LAM
from atlas_engine.adapt.unlabelled import TestTimeConfig
from atlas_engine.bank import TaskVector, TaskVectorBank, load_bank, save_bank
from atlas_engine.cli import main
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.linearised import TangentTower
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from atlas_engine.errors import AtlasError, BankError, RecipeError
from atlas_engine.recipe import Recipe
from studies.tower_training import TowerTrainer, TowerTrainingSettings, predict_logits
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_vectors

TRAIN = ["--steps", "4", "--batch", "4", "--lr", "0.01", "--warm-up", "1", "--kind", "linear"]
QUICK = FewShotConfig(steps=3, batch=4, views=1, folds=2)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "colours"
    write_pictures(path, {"red": 6, "blue": 6, "dark_green": 6})
    return path


@pytest.fixture(scope="module")
def support(photos):
    return Support.from_folder(photos)


@pytest.fixture(scope="module")
def pixels(support):
    return tiny_engine().pixels(support.images)


def bank_of(kind, *, size=0.3):
    """Three random vectors that say they are of this kind."""
    vectors = tiny_vectors(tiny_engine().backbone.visual, size=size)
    return TaskVectorBank.from_vectors([of_kind(vector, kind) for vector in vectors])


def of_kind(vector, kind):
    return TaskVector(vector.name, vector.blocks, vector.base, replace(vector.info, kind=kind))


@pytest.fixture(scope="module")
def bank():
    return bank_of("linear")


def tangent_logits(recipe, bank, pixels):
    """Logits under the class names at f(x; θ0) + J·Δ, by central differences of the plain tower."""
    backbone = tiny_engine().backbone
    images = backbone.as_input(pixels.float() / 255).double()
    theta0 = dict(backbone.visual.named_parameters())
    table = recipe.coefficients.table
    delta = {
        block.name: sum(
            table[t, m] * bank.vector(task).blocks[block.name] for t, task in enumerate(bank.tasks)
        )
        for m, block in enumerate(bank.blocks)
    }

    @torch.no_grad()
    def features(step):
        tower = copy.deepcopy(backbone.visual).double()
        tower.load_state_dict({name: (theta0[name] + step * delta[name]).double() for name in theta0})
        return tower(images)

    step = 1e-4
    linear = features(0.0) + (features(step) - features(-step)) / (2 * step)
    return backbone.logit_scale * normalize(linear, dim=-1).float() @ tiny_engine().head(recipe.classes).T


def test_from_training_to_an_answer_on_the_command_line(photos, pixels, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "atlas_engine.engine.open",
        lambda _model, *, bank=None, cache=True: Atlas(tiny_engine().backbone, bank_path=bank),
    )
    file, recipe = tmp_path / "bank.safetensors", tmp_path / "mine.atlas.safetensors"
    for name, seed in (("one", "0"), ("two", "1")):
        words = [str(photos), "--name", name, "--into", str(file), "--seed", seed]
        assert main(["bank", "train", *TRAIN, *words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["kind"] == "linear"
    assert main(["bank", "show", str(file)]) == 0
    assert ["kind", "linear"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    learn = ["adapt", "few-shot", str(photos), "--bank", str(file), "--method", "atlas", "--steps", "4"]
    assert main([*learn, "--batch", "4", "-o", str(recipe)]) == 0
    learned, bank = Recipe.load(recipe), load_bank(file)
    assert bool(learned.coefficients.values.any())
    capsys.readouterr()
    # what the command answers is what the formula says
    images = sorted(str(path) for path in (photos / "red").iterdir())
    assert main(["predict", *images, "--recipe", str(recipe), "--bank", str(file), "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    read = tiny_engine().pixels(tiny_engine().read_images(images))
    probs, labels = tangent_logits(learned, bank, read).softmax(dim=1).max(dim=1)
    assert [row["label"] for row in answers] == [learned.classes[label] for label in labels]
    # the command prints four digits
    assert [row["prob"] for row in answers] == pytest.approx(probs.tolist(), abs=1e-3)


@pytest.mark.parametrize("method", ["atlas", "paper"])
def test_a_few_shot_recipe_answers_by_the_tangent(method, support, pixels, bank):
    config = replace(QUICK, steps=3, epochs=0, batch=6)
    result = tiny_engine().few_shot(support, method=method, config=config, bank=bank).result()
    assert bool(result.coefficients.values.any())
    answered = tiny_engine().logits(result.recipe, pixels, bank=bank)
    # float32 against central differences in float64
    torch.testing.assert_close(
        answered, tangent_logits(result.recipe, bank, pixels), rtol=1e-3, atol=1e-3 * 20.0
    )


def test_heads_over_several_levels_of_features_follow_the_tangent_to_first_order(support, pixels, bank):
    """The gap to the same numbers composed as weights falls with the square of λ."""
    weights, engine = bank_of("standard"), tiny_engine()
    learned = engine.few_shot(support, method="auto", config=QUICK, bank=bank)
    result = next(step.preview for step in learned if step.preview is not None)
    draw = torch.randn(3, len(bank.blocks), generator=torch.Generator().manual_seed(0))

    def logits(size, source):
        coefficients = Coefficients(size * draw, result.coefficients.layout, bank.tasks, bank.blocks)
        recipe = replace(result, coefficients=coefficients, bank_fingerprint=source.fingerprint)
        return engine.logits(recipe, pixels, bank=source)

    gaps = [(logits(size, bank) - logits(size, weights)).norm().item() for size in (0.05, 0.025)]
    moved = (logits(0.05, bank) - logits(0.0, bank)).norm().item()
    assert logits(0.05, bank).shape[1] == 3
    assert 0 < gaps[0] < 0.3 * moved
    assert gaps[1] < 0.35 * gaps[0], "a quarter, but for terms of third order"


def test_a_recipe_of_linear_vectors_learns_on_from_its_tangent(support, pixels, bank):
    engine, config = tiny_engine(), replace(QUICK, steps=0)
    result = engine.few_shot(support, method="atlas", config=QUICK, bank=bank).result()
    run = engine.continue_from(result.recipe, support, config=config, bank=bank)
    estimates = {one.method: one.accuracy for one in run.result().estimates}
    answered = engine.logits(result.recipe, pixels, bank=bank).argmax(dim=1)
    right = (answered == torch.tensor(support.labels)).float().mean().item()
    assert estimates["the recipe as it was"] == pytest.approx(right)


@pytest.mark.parametrize("method", ["auto", "ufm", "entropy"])
def test_images_without_labels_are_adapted_to_on_the_tangent(method, support, pixels, bank):
    config = TestTimeConfig(steps=2, epochs=0, views=1, batch=6)
    run = tiny_engine().test_time(support.images, support.classes, objective=method, config=config, bank=bank)
    result = run.result()
    tower = tiny_engine().tower(result.recipe, bank=bank)
    assert isinstance(tower, TangentTower) == bool(result.coefficients.values.any())
    assert tiny_engine().logits(result.recipe, pixels, bank=bank).isfinite().all()


def test_addition_trains_all_blocks_from_its_start(photos, support, bank):
    """The early part of a tangent cannot be computed once, so it is trained with the rest."""
    engine = tiny_engine()
    config = AddConfig(steps=3, lr=0.1, batch=6, views=1, share=0.4, grid=0.5)
    tasks = {"one": support, "two": support}
    table = engine.add(tasks, method="adamerging", config=config, bank=bank).result().coefficients.table
    assert bool((table != 0.3).all())
    searched = engine.add(tasks, method="scalar", config=config, bank=bank).result()
    assert searched.recipe.method == "scalar"


def test_task_arithmetic_measures_the_tangent(support, pixels, bank):
    engine, recipe = tiny_engine(), recipe_at(bank, 0.2)
    data = TaskData("photos", recipe.classes, engine.head(recipe.classes), pixels)
    tower = WholeTower(AdaptContext(engine.backbone, bank, engine.fingerprint, (data,)))
    torch.testing.assert_close(
        tower.logits(recipe.coefficients.values, pixels),
        tangent_logits(recipe, bank, pixels),
        rtol=1e-3,
        atol=1e-3 * 20.0,
    )


def test_studies_compose_linear_vectors_on_the_tangent(pixels, bank):
    engine = tiny_engine()
    recipe = recipe_at(bank, 0.2)
    trainer = TowerTrainer(engine, TowerTrainingSettings(share=1.0))
    trainable = trainer.coefficients(bank, Layout(), engine.head(recipe.classes))
    values = {LAM: recipe.coefficients.values[None]}
    torch.testing.assert_close(
        predict_logits(trainable, values, trainer.activations(pixels)),
        tangent_logits(recipe, bank, pixels),
        rtol=1e-3,
        atol=1e-3 * 20.0,
    )


# ---- what is refused


def recipe_at(bank, value):
    values = torch.full((len(bank), len(bank.blocks)), value)
    return Recipe(
        Coefficients(values, Layout(), bank.tasks, bank.blocks),
        "tiny",
        tiny_engine().fingerprint,
        bank.fingerprint,
        ("red", "blue"),
    )


def test_weights_of_a_linear_mix_are_refused_with_a_sentence(bank, tmp_path):
    path = tmp_path / "bank.safetensors"
    save_bank(bank, path)
    engine = Atlas(tiny_engine().backbone, bank_path=path)
    with pytest.raises(BankError, match=r"move the tower's tangent and no weights.*let `predictor` answer"):
        engine.adapted(recipe_at(bank, 0.5))
    with pytest.raises(AtlasError, match="no weights"):
        save_weights(engine, recipe_at(bank, 0.5), tmp_path)
    with pytest.raises(AtlasError, match="no weights"):
        engine.export(recipe_at(bank, 0.5), tmp_path / "exported")
    assert list(tmp_path.iterdir()) == [path]
    zero = dict(engine.adapted(recipe_at(bank, 0.0)).named_parameters())
    base = dict(engine.backbone.visual.named_parameters())
    assert all(torch.equal(zero[name], base[name]) for name in base)


def test_a_recipe_of_linear_vectors_is_not_one_of_the_same_numbers_as_weights(bank):
    with pytest.raises(RecipeError, match=r"the bank .* is open"):
        tiny_engine().tower(recipe_at(bank, 0.5), bank=bank_of("standard"))


def test_a_bank_of_lora_vectors_answers_as_the_same_numbers_do_as_standard_ones(pixels):
    lora, standard = bank_of("lora"), bank_of("standard")
    assert (lora.kind, standard.kind) == ("lora", "standard")
    assert lora.fingerprint == standard.fingerprint
    answers = [tiny_engine().logits(recipe_at(one, 0.3), pixels, bank=one) for one in (lora, standard)]
    assert torch.equal(*answers)
