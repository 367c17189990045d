"""`auto` beside its own passes: all are counted, on every copy of the tower, and as many are made bare."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from atlas_engine.adapt.methods import AUTO, find_method
from atlas_engine.adapt.settings import FewShotConfig
from atlas_engine.bank.storage import find_storage, vector_nbytes
from atlas_engine.runtime import frozen_copy
from studies.speed.few_shot_vit import PassCounter, PlainPasses, few_shot_vit
from studies.speed.vit import CLASSES, SMALL_VIT_L_14, VIT_B_32, VitShape, noise_support, open_random_vit

TINY = VitShape("tiny", width=64, layers=2, patch=16, pixels=32, embedding=32)


@pytest.fixture(scope="module")
def session():
    return open_random_vit(TINY, vectors=2, storage="int4")


def test_the_shapes_are_those_of_clip():
    shapes = VIT_B_32.block_shapes
    assert len(shapes) == 152  # as the paper counts them
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    assert sum(sizes) == 87_849_216
    assert len(SMALL_VIT_L_14.block_shapes) == 152  # of 296: half of 24 layers


def test_a_random_session_adapts_with_its_own_bank(session):
    engine, bank = session
    assert bank.storage == "int4"
    assert bank.nbytes == 2 * vector_nbytes(bank.blocks, find_storage("int4"))
    config = FewShotConfig(steps=1, views=1)
    result = engine.few_shot(noise_support(TINY), bank=bank, config=config).result()
    assert result.recipe.classes == CLASSES
    assert len(result.history) == 1


def test_passes_are_counted_on_copies_too_with_and_without_a_graph(session):
    tower, passes = frozen_copy(session[0].backbone.visual), PassCounter()
    passes.count(tower)
    images = torch.zeros(3, 3, 32, 32)
    tower(images)
    frozen_copy(tower)(images[:2])
    with torch.no_grad():
        tower(images)
    assert passes == PassCounter(Counter({3: 1, 2: 1}), Counter({3: 1}))
    passes.clear()
    assert passes.with_graph.total() == 0


def test_plain_passes_reach_every_weight_that_auto_trains(session):
    engine, _ = session
    plain = PlainPasses(engine)
    once, twice = (plain.run(Counter({2: count})) for count in (1, 2))
    assert len(once) == len(list(plain._tower.parameters()))
    torch.testing.assert_close(twice, 2 * once, rtol=1e-5, atol=1e-7)  # gradients of equal passes add up


def test_the_suite_times_auto_beside_as_many_passes():
    report = few_shot_vit(shape=TINY, steps=2)
    (bar,) = report.bars
    assert (bar.measure, bar.limit) == ("auto, to its own forward and backward passes", 8.0)
    assert bar.value > 0
    # two steps of five trainings: one on all 8 images, four without two of them
    assert report.notes["plain"].endswith("10 of 6 to 8 images")
    assert f"λ split by {find_method('few-shot', AUTO).layout.split_by}" in report.what
