"""The memory plan: its arithmetic, what it gives up first, and folds trained one after another."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from atlas_engine.adapt import few_shot
from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.adapt.memory_plan import measure_activations, memory_to_use, plan_run
from atlas_engine.bank.blocks import block_table
from atlas_engine.bank.storage import storage_named, vector_nbytes
from atlas_engine.data.support import Support
from atlas_engine.errors import ConfigError
from atlas_engine.result import Outcome
from tests.donors import random_bank
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_clip

GIB = 2**30
CONFIG = FewShotConfig(steps=4, batch=4, views=2, folds=4)


@pytest.fixture(scope="module")
def support(tmp_path_factory):
    folder = tmp_path_factory.mktemp("support") / "set"
    return Support.from_folder(write_pictures(folder, {"red": 4, "blue": 4}))


@pytest.fixture(scope="module")
def bank():
    return random_bank(dict(tiny_engine().backbone.visual.named_parameters()))


def transformer(width: int, layers: int):
    """Blocks of the size of a vision transformer's."""
    shapes = {}
    for layer in range(layers):
        at = f"transformer.resblocks.{layer}"
        shapes[f"{at}.attn.in_proj_weight"] = (3 * width, width)
        shapes[f"{at}.attn.out_proj.weight"] = (width, width)
        shapes[f"{at}.mlp.c_fc.weight"] = (4 * width, width)
        shapes[f"{at}.mlp.c_proj.weight"] = (width, 4 * width)
    return block_table((name, torch.empty(shape, device="meta")) for name, shape in shapes.items())


def large(limit: int, **changes):
    """A plan for a tower of ViT-L/14's size with 20 vectors and 5 trainings."""
    blocks = transformer(1024, 24)
    given = {
        "tasks": 20,
        "storage": "int4",
        "coefficients": 20 * len(blocks),
        "runs": 5,
        "batch": 16,
        "activation_nbytes": 200 * 2**20,
        "limit_nbytes": limit,
    }
    return plan_run(blocks, blocks, **{**given, **changes})


def test_the_items_are_the_sums_that_they_say():
    blocks = transformer(64, 2)
    plan = plan_run(
        blocks,
        blocks,
        tasks=3,
        storage="int8",
        coefficients=24,
        runs=2,
        batch=4,
        activation_nbytes=1000,
        kept_nbytes=77,
        limit_nbytes=GIB,
    )
    found = {item.name: item.nbytes for item in plan.items}
    assert found == {
        "base weights": 4 * blocks.numel,
        "bank": 3 * vector_nbytes(blocks, storage_named("int8")),
        "composed weights": 2 * 4 * blocks.numel,
        "gradients": 2 * 4 * blocks.numel,
        "activations": 4000,
        "optimiser": 6 * 2 * 24 * 4,
        "images": 77,
    }
    assert plan.nbytes == sum(found.values())
    assert "2 of 2 trainings at once, 3 of 3 vectors in int8" in str(plan)


def test_twenty_vectors_of_a_large_tower_fit_24_gib():
    plan = large(24 * GIB)
    assert plan.fits
    assert plan.chosen == plan.given == (20, "int4")


def test_folds_are_given_up_before_storage_and_storage_before_vectors():
    enough = large(1000 * GIB, storage="float32")
    assert (enough.runs_at_once, enough.chosen) == (5, (20, "float32"))
    fewer_folds = large(enough.nbytes - 1, storage="float32")
    assert (fewer_folds.runs_at_once, fewer_folds.chosen) == (4, (20, "float32"))
    narrower = large(20 * GIB, storage="float32")
    assert (narrower.runs_at_once, narrower.chosen) == (1, (20, "float16"))
    fewer_vectors = large(8 * GIB, storage="float32")
    assert fewer_vectors.runs_at_once == 1
    assert fewer_vectors.chosen[1] == "int4"
    assert fewer_vectors.chosen[0] < 20
    assert not large(GIB).fits


def test_activations_of_a_linear_layer_are_its_inputs():
    tower = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    images = torch.zeros(3, 8)
    # the first layer keeps its input (8 numbers), ReLU its result (4), which is the last layer's input too
    assert measure_activations(tower, images) == 4 * (8 + 4)
    assert measure_activations(tower.to("meta"), images.to("meta")) == 4 * (8 + 4)


def test_activations_are_measured_without_touching_the_tower():
    tower = tiny_clip("vit").visual
    before = {name: parameter.requires_grad for name, parameter in tower.named_parameters()}
    assert measure_activations(tower, torch.zeros(2, 3, 32, 32)) > 0
    assert {name: parameter.requires_grad for name, parameter in tower.named_parameters()} == before
    assert all(parameter.grad is None for parameter in tower.parameters())


@pytest.mark.parametrize("at_once", [1, 2, 4])
@pytest.mark.parametrize("storage", ["float32", "int4"])
def test_folds_one_after_another_learn_the_same_as_side_by_side(at_once, storage, support, bank, monkeypatch):
    engine, stored = tiny_engine(), bank.stored_as(storage)
    whole = engine.few_shot(support, bank=stored, config=CONFIG).result()
    monkeypatch.setattr(few_shot._FewShotRun, "runs_at_once", lambda *_args, **_given: at_once)
    run = engine.few_shot(support, bank=stored, config=CONFIG)
    shares = [step.share for step in run]
    grouped = run.result()
    assert grouped.estimates == whole.estimates
    assert grouped.recipe == whole.recipe
    assert shares == sorted(shares)
    assert len(grouped.history) == CONFIG.steps * -(-5 // at_once)


def test_a_run_that_is_cancelled_between_groups_keeps_its_preview(support, bank, monkeypatch):
    monkeypatch.setattr(few_shot._FewShotRun, "runs_at_once", lambda *_args, **_given: 2)
    run = tiny_engine().few_shot(support, bank=bank, config=CONFIG)
    for step in run:
        if step.phase == "learn" and step.index == 1:
            run.cancel()
    result = run.result()
    assert result.outcome is Outcome.cancelled
    assert {estimate.method for estimate in result.estimates} == {"zero-shot", "text-probe"}


def test_a_memory_limit_makes_groups_and_too_small_a_limit_is_refused(support, bank):
    engine = tiny_engine()
    plenty = engine.few_shot(support, bank=bank, config=CONFIG, memory_limit=1000.0).result()
    assert len(plenty.history) == CONFIG.steps
    needed = None
    for limit in (1.2, 1.3, 1.4, 1.5, 1.7, 2.0):
        try:
            needed = engine.few_shot(support, bank=bank, config=CONFIG, memory_limit=limit).result()
            break
        except ConfigError:
            continue
    assert needed is not None
    assert len(needed.history) > CONFIG.steps
    assert needed.recipe == plenty.recipe
    with pytest.raises(ConfigError, match="does not hold this run even with one training at a time"):
        engine.few_shot(support, bank=bank, config=CONFIG, memory_limit=0.1).result()


def test_a_cpu_has_no_limit_of_its_own():
    assert memory_to_use(torch.device("cpu"), None) is None
    assert memory_to_use(torch.device("cpu"), 2.0) == 2 * 2**20
