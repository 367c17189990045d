"""The memory plan: its arithmetic, what it gives up first, and folds trained one after another."""

from __future__ import annotations

import copy
import dataclasses
import functools

import pytest
import torch
from torch import nn

from atlas_engine import runtime
from atlas_engine.adapt import few_shot, memory_plan, open_bank
from atlas_engine.adapt.memory_plan import (
    ActivationSizes,
    measure_activations,
    memory_to_use,
    plan_few_shot,
    plan_run,
)
from atlas_engine.adapt.methods import find_method
from atlas_engine.adapt.settings import FewShotConfig
from atlas_engine.bank.bank_file import save_bank
from atlas_engine.bank.blocks import block_table
from atlas_engine.bank.storage import find_storage, vector_nbytes
from atlas_engine.compose.coefficients import Layout
from atlas_engine.data.support import Support
from atlas_engine.errors import BankError, ConfigError
from atlas_engine.result import Outcome
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.task_vectors import random_bank
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


@functools.cache
def large_tower():
    """The image tower of ViT-L/14, without numbers."""
    runtime.ensure_torchvision()
    from open_clip.transformer import VisionTransformer

    with torch.device("meta"):
        return VisionTransformer(
            image_size=224, patch_size=14, width=1024, layers=24, heads=16, mlp_ratio=4.0, output_dim=768
        ).eval()


@functools.cache
def large_activations():
    return measure_activations(large_tower(), torch.zeros(2, 3, 224, 224, device="meta"))


def large(limit: int, **changes):
    """A plan for the whole of ViT-L/14 with 20 vectors and 5 trainings."""
    blocks = block_table(large_tower().named_parameters())
    given = {
        "tasks": 20,
        "storage": "int4",
        "layout": Layout(partitions=20),
        "runs": 5,
        "batch": 16,
        "activations": large_activations(),
        "limit_nbytes": limit,
    }
    return plan_run(blocks, blocks, **{**given, **changes})


def test_the_items_are_the_sums_that_they_say():
    blocks = block_table(tiny_clip("vit").visual.named_parameters())
    plan = plan_run(
        blocks,
        blocks,
        tasks=3,
        storage="int8",
        layout=Layout(partitions=20),
        runs=2,
        batch=4,
        activations=ActivationSizes(1000, fixed_nbytes=7),
        kept_nbytes=77,
        limit_nbytes=GIB,
    )
    found = {item.name: item.nbytes for item in plan.items}
    lost = found.pop("allocator")
    assert lost == int(memory_plan.ALLOCATOR_SHARE * sum(found.values()))
    assert found == {
        "base weights": 4 * blocks.numel,
        "bank": 3 * vector_nbytes(blocks, find_storage("int8")),
        "composed weights": 2 * 4 * blocks.numel,
        "gradients": 2 * 4 * blocks.numel,
        "activations": 4007,
        "partitions": blocks.numel,  # a byte tells one of 20 from the others
        "optimiser": 6 * 2 * (3 * len(blocks) * 20) * 4,
        "images": 77,
    }
    assert plan.nbytes == sum(found.values()) + lost
    assert "2 of 2 trainings at once, 4 of 4 images at a time, 3 of 3 vectors in int8" in str(plan)


@pytest.mark.parametrize(
    ("layout", "nbytes"),
    [(Layout(), 0), (Layout(partitions=20, split_by="rows"), 0), (Layout(partitions=1200), 4)],
)
def test_partitions_are_looked_up_for_scattered_numbers_only(layout, nbytes):
    blocks = block_table(large_tower().named_parameters())
    found = {item.name: item.nbytes for item in large(1000 * GIB, layout=layout).items}
    assert found["partitions"] == nbytes * blocks.numel


def test_twenty_vectors_of_vit_l_14_fit_24_gib():
    assert len(block_table(large_tower().named_parameters())) == 296  # aTLAS, section 4
    plan = large(24 * GIB)
    assert plan.fits
    assert plan.chosen == plan.given == (20, "int4")
    assert plan.micro_batch == 16


def test_folds_are_given_up_before_batches_then_storage_and_vectors_last():
    enough = large(1000 * GIB, storage="float32")
    assert (enough.runs_at_once, enough.micro_batch, enough.chosen) == (5, 16, (20, "float32"))
    fewer_folds = large(enough.nbytes - 1, storage="float32")
    assert (fewer_folds.runs_at_once, fewer_folds.micro_batch, fewer_folds.chosen) == (4, 16, (20, "float32"))
    alone = large(1000 * GIB, storage="float32", runs=1)
    in_parts = large(alone.nbytes - 1, storage="float32")
    assert (in_parts.runs_at_once, in_parts.micro_batch, in_parts.chosen) == (1, 8, (20, "float32"))
    one_image = large(1000 * GIB, storage="float32", runs=1, batch=1)
    narrower = large(one_image.nbytes - 1, storage="float32")
    assert (narrower.runs_at_once, narrower.chosen) == (2, (20, "float16"))
    narrowest = large(1000 * GIB, runs=1, batch=1)
    fewer_vectors = large(narrowest.nbytes - 1, storage="float32")
    assert (fewer_vectors.runs_at_once, fewer_vectors.micro_batch) == (1, 1)
    assert fewer_vectors.chosen == (19, "int4")
    assert not large(GIB).fits


def test_activations_of_a_linear_layer_are_its_inputs():
    tower = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    images = torch.zeros(3, 8)
    # the first layer keeps its input (8 numbers), ReLU its result (4), which is the last layer's input too
    assert measure_activations(tower, images) == ActivationSizes(4 * (8 + 4))
    assert measure_activations(tower, images[:1]) == ActivationSizes(4 * (8 + 4))
    assert measure_activations(tower.to("meta"), images.to("meta")) == ActivationSizes(4 * (8 + 4))


def test_weights_in_the_numbers_of_autocast_are_counted_once_however_many_images(monkeypatch):
    monkeypatch.setenv("ATLAS_AUTOCAST", "bfloat16")
    found = measure_activations(nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2)), torch.zeros(3, 8))
    # both inputs, and the second layer's weights, which the gradient of its input needs
    assert found == ActivationSizes(2 * (8 + 4), fixed_nbytes=2 * 4 * 2)
    assert found.of(3) == 3 * 24 + 16


def test_without_numbers_attention_is_counted_unfused():
    visual, images = tiny_clip("vit").visual, torch.zeros(2, 3, 32, 32)
    wanted = measure_activations(visual, images).nbytes_per_image
    found = measure_activations(copy.deepcopy(visual).to("meta"), images.to("meta")).nbytes_per_image
    assert wanted <= found <= 1.25 * wanted


def test_activations_are_measured_without_touching_the_tower():
    tower = tiny_clip("vit").visual
    before = {name: parameter.requires_grad for name, parameter in tower.named_parameters()}
    assert measure_activations(tower, torch.zeros(2, 3, 32, 32)).nbytes_per_image > 0
    assert {name: parameter.requires_grad for name, parameter in tower.named_parameters()} == before
    assert all(parameter.grad is None for parameter in tower.parameters())


@pytest.mark.parametrize("at_once", [1, 2, 4])
@pytest.mark.parametrize("storage", ["float32", "int4"])
def test_folds_one_after_another_learn_the_same_as_side_by_side(at_once, storage, support, bank, monkeypatch):
    engine, stored = tiny_engine(), bank.stored_as(storage)
    whole = engine.few_shot(support, bank=stored, config=CONFIG).result()
    monkeypatch.setattr(few_shot.FewShotRun, "fit_into_memory", lambda *_args, **_given: (at_once, None))
    run = engine.few_shot(support, bank=stored, config=CONFIG)
    shares = [step.share for step in run]
    grouped = run.result()
    assert grouped.estimates == whole.estimates
    assert grouped.recipe == whole.recipe
    assert shares == sorted(shares)
    assert len(grouped.history) == CONFIG.steps * -(-5 // at_once)


def test_a_run_that_is_cancelled_between_groups_keeps_its_preview(support, bank, monkeypatch):
    monkeypatch.setattr(few_shot.FewShotRun, "fit_into_memory", lambda *_args, **_given: (2, None))
    run = tiny_engine().few_shot(support, bank=bank, config=CONFIG)
    for step in run:
        if step.phase == "learn" and step.index == 1:
            run.cancel()
    result = run.result()
    assert result.outcome is Outcome.cancelled
    assert {estimate.method for estimate in result.estimates} == {"zero-shot", "text-probe"}


def test_a_memory_limit_makes_groups_then_small_batches_and_too_small_a_limit_is_refused(support, bank):
    engine = tiny_engine()

    def adapt(limit_nbytes: int):
        return engine.few_shot(support, bank=bank, config=CONFIG, memory_limit=limit_nbytes / 2**20).result()

    plenty = adapt(1000 * 2**20)
    assert len(plenty.history) == CONFIG.steps
    needs = sizes_of_plans(engine, support, bank)
    in_groups = adapt(needs["two trainings"])
    assert len(in_groups.history) == 3 * CONFIG.steps
    assert in_groups.recipe == plenty.recipe
    in_parts = adapt(needs["two images"])
    assert len(in_parts.history) == 5 * CONFIG.steps
    assert in_parts.recipe.config == plenty.recipe.config
    found, wanted = (run.recipe.coefficients.values for run in (in_parts, plenty))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)  # the gradient in another order
    with pytest.raises(ConfigError, match="do not hold it even with one training and one image"):
        adapt(needs["one image"] - 2**10)


def sizes_of_plans(engine, support, bank) -> dict[str, int]:
    """Bytes of a run of `CONFIG` with fewer trainings, and with fewer images at a time."""
    plans = {}

    def plan(self, encoder, views, *, runs, limit_nbytes):
        for name, (trainings, batch) in {
            "two trainings": (2, 4),
            "two images": (1, 2),
            "one image": (1, 1),
        }.items():
            config = dataclasses.replace(self.config, batch=batch)
            smaller = few_shot.FewShotRun.__new__(few_shot.FewShotRun)
            smaller.__dict__ |= {**self.__dict__, "config": config}
            plans[name] = real(smaller, encoder, views, runs=trainings, limit_nbytes=10 * GIB).nbytes
        return real(self, encoder, views, runs=runs, limit_nbytes=limit_nbytes)

    real = few_shot.FewShotRun.plan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_shot.FewShotRun, "plan", plan)
        engine.few_shot(support, bank=bank, config=CONFIG, memory_limit=1000.0).result()
    return plans


def test_a_gpu_without_room_is_said_and_not_tried(support, bank, monkeypatch):
    monkeypatch.setattr(few_shot, "memory_to_use", lambda *_: 10_000)
    with pytest.raises(ConfigError, match=r"there are 9\.8 KiB of memory for this run"):
        tiny_engine().few_shot(support, bank=bank, config=CONFIG).result()


def test_a_bank_is_read_as_narrowly_as_memory_asks_for(tmp_path, bank, monkeypatch, caplog):
    engine, path = tiny_engine(), tmp_path / "bank.safetensors"
    save_bank(bank, path)
    assert open_bank.load_within_memory(path, engine.backbone).storage == "float32"  # a CPU has no limit
    for limit, storage in ((GIB, "float32"), (needed(engine, "float16"), "float16")):
        monkeypatch.setattr(open_bank, "memory_to_use", lambda *_, limit=limit: limit)
        found = open_bank.load_within_memory(path, engine.backbone)
        assert found.storage == storage
        assert found.fingerprint == bank.fingerprint
    assert "is stored as float32 and used as float16" in caplog.text
    monkeypatch.setattr(open_bank, "memory_to_use", lambda *_: 10_000)
    with pytest.raises(BankError, match="Give more memory, or make a bank of fewer vectors"):
        open_bank.load_within_memory(path, engine.backbone)


def needed(engine, storage: str) -> int:
    """Bytes of the smallest run that must fit beside the bank."""
    plan = plan_few_shot(
        engine.backbone,
        find_method("few-shot", "auto"),
        tasks=3,
        storage=storage,
        images=open_bank.SMALL_RUN,
        batch=open_bank.SMALL_RUN,
        micro_batch=1,
        views=1,
        runs=1,
        limit_nbytes=GIB,
    )
    return plan.nbytes


def test_a_cpu_has_no_limit_of_its_own():
    assert memory_to_use(torch.device("cpu"), None) is None
    assert memory_to_use(torch.device("cpu"), 2.0) == 2 * 2**20
