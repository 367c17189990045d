"""Runs with a budget from a bank on disk: equal answers for equal vectors, however many others there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from atlas_engine.adapt.open_bank import open_bank
from atlas_engine.adapt.selection import SHORTLIST
from atlas_engine.adapt.settings import FewShotConfig, TestTimeConfig
from atlas_engine.bank import TaskVectorBank, save_bank
from atlas_engine.bank.tiered import TieredBank
from atlas_engine.bank.vector import TaskVector, VectorInfo
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from atlas_engine.recipe import Recipe
from studies.banks.dummy import dummy_bank
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_vectors

OWN = SHORTLIST
"""Vectors whose data sets look like the images: as many as a short list holds."""

SIZES = (OWN, 200, 500)
SHORT = FewShotConfig(steps=3, batch=4, views=1, lr=0.2, share=1.0)


@pytest.fixture(scope="module")
def support(tmp_path_factory):
    folder = tmp_path_factory.mktemp("support") / "set"
    return Support.from_folder(write_pictures(folder, {"red": 4, "blue": 4}))


@pytest.fixture(scope="module")
def files(tmp_path_factory, support) -> dict[int, Path]:
    """Bank files of 32, 200 and 500 vectors; all but the first 32 are dummies."""
    engine = tiny_engine()
    feature = engine.features(support.images).mean(dim=0)
    draw = torch.Generator().manual_seed(0)
    vectors = []
    for vector in tiny_vectors(engine.backbone.visual, tasks=OWN):
        centroid = tuple((feature + 0.01 * torch.randn(16, generator=draw)).tolist())
        vectors.append(TaskVector(vector.name, vector.blocks, vector.base, VectorInfo(centroid=centroid)))
    own = TaskVectorBank.from_vectors(vectors, storage="int8")
    folder = tmp_path_factory.mktemp("banks")
    for size in SIZES:
        save_bank(dummy_bank(own, vectors=size), folder / f"{size}.safetensors")
    return {size: folder / f"{size}.safetensors" for size in SIZES}


def run(path: Path, support: Support, *, memory: float = 4.0, **asked) -> tuple[Recipe, torch.Tensor, Atlas]:
    """The recipe of a run with the bank on disk, and the logits of the recipe's model; the engine is open."""
    engine = Atlas(tiny_engine().backbone, bank_path=path, bank_memory=memory)
    recipe = engine.few_shot(support, config=SHORT, budget=8, **asked).result().recipe
    return recipe, engine.logits(recipe, engine.pixels(support.images)), engine


@pytest.mark.parametrize("select", ["gradient", "features"])
@pytest.mark.parametrize("method", ["atlas", "atlas+text-probe"])
def test_20_200_and_500_vectors_give_equal_answers_for_the_same_selected_ones(files, support, method, select):
    found = {size: run(path, support, method=method, select=select) for size, path in files.items()}
    assert not isinstance(found[OWN][2].bank, TieredBank)  # small enough to be resident
    recipe, logits, _ = found[OWN]
    assert bool((recipe.coefficients.values != 0).any())
    for size in SIZES[1:]:
        other, other_logits, engine = found[size]
        assert isinstance(engine.bank, TieredBank)
        values = other.coefficients.values
        assert values.shape[0] == size
        assert torch.equal(values[:OWN], recipe.coefficients.values)
        assert not values[OWN:].any()
        assert torch.equal(other_logits, logits)
    # no more is read of 500 vectors than of 200
    tiers = [found[size][2].bank.tiers for size in SIZES[1:]]
    for one in tiers:
        one.wait()
    assert tiers[0].read_nbytes == tiers[1].read_nbytes
    for _, _, engine in found.values():
        engine.close()


def test_a_bank_in_memory_answers_as_the_same_bank_on_disk(files, support):
    on_disk, in_memory = (run(files[200], support, memory=memory) for memory in (0.05, 1000.0))
    assert isinstance(on_disk[2].bank, TieredBank)
    assert not isinstance(in_memory[2].bank, TieredBank)
    assert torch.equal(on_disk[0].coefficients.values, in_memory[0].coefficients.values)
    assert torch.equal(on_disk[1], in_memory[1])
    on_disk[2].close()


def test_a_run_with_a_budget_never_has_the_whole_bank_and_reads_ahead_while_it_learns(files, support):
    engine = Atlas(tiny_engine().backbone, bank_path=files[500], bank_memory=4.0)
    bank, phases = engine.bank, {}
    assert isinstance(bank, TieredBank)
    steps = engine.few_shot(support, method="atlas", config=SHORT, budget=8)
    for step in steps:
        phases.setdefault(step.phase, bank.residency())
    assert phases["select"].memory_nbytes == 0
    learning = phases["learn"]
    assert 8 <= learning.count(learning.vectors[0].tier.device) <= SHORTLIST
    bank.tiers.wait()
    held = [place for place in bank.residency().vectors if place.memory_nbytes]
    assert len(held) == 2 * SHORTLIST  # the short list, and the next in rank
    assert {place.task for place in held} > {f"task{t}" for t in range(OWN)}
    assert bank.tiers.read_nbytes <= bank.tiers.file.nbytes * 2 * SHORTLIST / 500
    engine.close()


def test_a_recipe_is_rebuilt_from_the_vectors_that_it_draws_on(files, support):
    recipe, logits, first = run(files[500], support, method="atlas", select="features")
    first.close()
    engine = Atlas(tiny_engine().backbone, bank_path=files[500], bank_memory=0.05)
    assert torch.equal(engine.logits(recipe, engine.pixels(support.images)), logits)
    assert engine.bank.tiers.read_nbytes == engine.bank.tiers.file.nbytes * 8 // 500
    engine.close()


def test_images_without_labels_choose_from_disk_too(files, support):
    engine = Atlas(tiny_engine().backbone, bank_path=files[500], bank_memory=0.05)
    config = TestTimeConfig(steps=2, batch=4, views=1, share=1.0)
    found = engine.test_time(support.images, support.classes, objective="entropy", config=config, budget=4)
    recipe = found.result().recipe
    assert not recipe.coefficients.values[OWN:].any()
    assert engine.bank.tiers.read_nbytes <= engine.bank.tiers.file.nbytes * 4 // 500
    engine.close()


def test_a_run_without_a_budget_loads_the_whole_bank_and_learns_as_a_resident_one(files, support):
    results = []
    for memory in (0.05, 1000.0):
        engine = Atlas(tiny_engine().backbone, bank_path=files[OWN], bank_memory=memory)
        results.append(engine.few_shot(support, method="atlas", config=SHORT).result().recipe)
        engine.close()
    assert torch.equal(results[0].coefficients.values, results[1].coefficients.values)


def test_a_bank_is_left_on_disk_from_the_size_that_the_environment_names(files, monkeypatch):
    backbone = tiny_engine().backbone
    assert not isinstance(open_bank(files[500], backbone), TieredBank)  # it is below a gigabyte
    monkeypatch.setenv("ATLAS_BANK_MEMORY", "1")
    opened = open_bank(files[500], backbone)
    assert isinstance(opened, TieredBank)
    assert opened.residency().memory_limit_nbytes == 2**20
    opened.close()
