"""The random bank has the real one's norms, block by block, and nothing else of it."""

from __future__ import annotations

import pytest
import torch

from studies.banks.random_bank import random_bank
from studies.banks.task_vectors import bank_geometry
from tests.tiny import tiny_bank, tiny_clip


@pytest.fixture(scope="module")
def real():
    return tiny_bank(tiny_clip().visual)


@pytest.mark.parametrize("storage", ["float32", "int8"])
def test_every_block_of_every_vector_keeps_its_norm(real, storage):
    stored = real.stored_as(storage)
    drawn = random_bank(stored)
    # int8 rounds what is drawn, each entry by at most 1/254 of the largest in its row
    rtol = 1e-4 if storage == "float32" else 1e-2
    torch.testing.assert_close(drawn.block_norms, stored.block_norms, rtol=rtol, atol=0)
    assert (drawn.tasks, drawn.blocks, drawn.base, drawn.storage) == (
        real.tasks,
        real.blocks,
        real.base,
        storage,
    )


def test_its_directions_are_those_of_no_vector(real):
    drawn = random_bank(real)
    cosines = [real.vector(task).cosine(drawn.vector(task)) for task in real.tasks]
    assert max(map(abs, cosines)) < 0.05  # about 1/√P for P = 30,000 numbers
    geometry = bank_geometry(drawn)
    assert abs(geometry.cosine[0][1]) < 0.05


def test_the_seed_decides_and_the_bank_has_its_own_fingerprint(real):
    first, again, other = random_bank(real), random_bank(real), random_bank(real, seed=1)
    block = real.blocks[0]
    assert torch.equal(first.vectors_of(block), again.vectors_of(block))
    assert not torch.equal(first.vectors_of(block), other.vectors_of(block))
    assert first.fingerprint == again.fingerprint
    assert len({real.fingerprint, first.fingerprint, other.fingerprint}) == 3


def test_a_block_of_zeros_stays_one(real):
    names = [block.name for block in real.blocks]
    from atlas_engine.bank import TaskVector, TaskVectorBank

    vector = real.vector(real.tasks[0])
    blocks = {**vector.blocks, names[0]: torch.zeros_like(vector.blocks[names[0]])}
    drawn = random_bank(TaskVectorBank.from_vectors([TaskVector("half", blocks, vector.base)]))
    assert not drawn.vectors_of(names[0]).any()
