"""Few-shot adaptation from pictures to an adapted tower, on a small real model and bank."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.atlas import Atlas
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.store import save_bank
from atlas_engine.bank.vector import TaskVector
from atlas_engine.data.support import Support
from atlas_engine.errors import BankError
from atlas_engine.recipe import Recipe
from tests.drawn import write_pictures
from tests.engines import tiny_engine

CONFIG = FewShotConfig(steps=12, batch=8, lr=0.2)


@pytest.fixture(scope="module")
def bank():
    """Three random directions, as long as a tenth of the weights."""
    seeded = torch.Generator().manual_seed(0)
    base = dict(tiny_engine().backbone.visual.named_parameters())
    vectors = []
    for name in ("first", "second", "third"):
        moved = {
            key: weight.detach()
            + 0.1 * weight.detach().std().nan_to_num(0.1) * torch.randn(weight.shape, generator=seeded)
            for key, weight in base.items()
        }
        vectors.append(TaskVector.between(name, base=base, tuned=moved))
    return TaskVectorBank.from_vectors(vectors)


@pytest.fixture(scope="module")
def support(tmp_path_factory):
    folder = tmp_path_factory.mktemp("support") / "set"
    return Support.from_folder(write_pictures(folder, {"red": 4, "blue": 4}))


def test_the_loss_falls_and_the_recipe_rebuilds_the_adapted_tower(support, bank, tmp_path):
    engine = tiny_engine()
    run = engine.few_shot(support, bank=bank, config=CONFIG, seed=3)
    losses = [step.loss for step in run]
    result = run.result()
    assert len(losses) == 12
    assert losses[-1] < losses[0]
    assert result.coefficients.tasks == ("first", "second", "third")
    result.save(tmp_path / "r.atlas.safetensors")
    recipe = Recipe.load(tmp_path / "r.atlas.safetensors")
    assert recipe.classes == ("blue", "red")
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        adapted = engine.adapted(recipe, bank=bank)(images)
        base = engine.backbone.visual(images)
        again = engine.adapted(result.recipe, bank=bank)(images)
    assert torch.equal(adapted, again)
    assert not torch.allclose(adapted, base)


def test_the_same_seed_gives_the_same_coefficients_and_another_seed_others(support, bank):
    engine = tiny_engine()
    short = FewShotConfig(steps=3, batch=4)
    first, again, other = (
        engine.few_shot(support, bank=bank, config=short, seed=seed).result().coefficients.values
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_bank_for_another_model_is_refused(support, bank):
    vectors = [bank.vector(name) for name in bank.tasks]
    strange = TaskVectorBank.from_vectors(
        [TaskVector(vector.name, vector.blocks, "0" * 64, vector.info) for vector in vectors]
    )
    with pytest.raises(BankError, match="made for another model than tiny"):
        tiny_engine().few_shot(support, bank=strange).result()


def test_a_model_without_a_bank_says_how_to_get_one():
    with pytest.raises(BankError, match="tiny has no bank of task vectors"):
        _ = tiny_engine().bank


def test_a_bank_file_is_read_when_it_is_first_needed(bank, tmp_path):
    save_bank(bank, tmp_path / "b.safetensors")
    engine = Atlas(tiny_engine().backbone, bank_path=tmp_path / "b.safetensors")
    assert engine.bank.tasks == bank.tasks
    assert engine.bank is engine.bank
