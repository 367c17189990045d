"""Merging without learning, against worked examples."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.bank import TaskVector, TaskVectorBank
from atlas_engine.bank.edit import merge_ties, ties_contributions
from atlas_engine.errors import BankError


def bank_of(*rows):
    return TaskVectorBank.from_vectors(
        [
            TaskVector(f"task{index}", {"proj": torch.tensor([row])}, "0" * 64)
            for index, row in enumerate(rows)
        ]
    )


def test_those_that_agree_with_the_larger_side_are_averaged():
    merged = merge_ties(bank_of([0.5, -1.0, 0.2], [0.3, 0.4, 0.0], [-0.6, 0.5, 0.4]), density=1.0)
    assert merged.blocks["proj"][0].tolist() == pytest.approx([0.4, -1.0, 0.3])


def test_only_the_largest_numbers_of_each_vector_count():
    merged = merge_ties(bank_of([4.0, 3.0, 2.0, 1.0], [0.1, 0.2, 0.3, 0.4]), density=0.5)
    assert merged.blocks["proj"][0].tolist() == pytest.approx([4.0, 3.0, 0.3, 0.4])


def test_one_vector_whole_is_itself_over_several_blocks():
    blocks = {"a": torch.tensor([[1.0, -2.0]]), "b.bias": torch.tensor([0.5])}
    bank = TaskVectorBank.from_vectors([TaskVector("one", blocks, "0" * 64)])
    merged = merge_ties(bank, density=1.0)
    assert all(torch.equal(merged.blocks[name], value) for name, value in blocks.items())
    assert merged.info.dataset == "one"


def test_what_each_vector_gives_adds_up_to_the_merged_one():
    bank = bank_of([0.5, -1.0, 0.2], [0.3, 0.4, 0.0], [-0.6, 0.5, 0.4])
    shares = ties_contributions(bank, density=1.0)
    assert [share.name for share in shares] == list(bank.tasks)
    assert [share.blocks["proj"][0, 0].item() for share in shares] == pytest.approx([0.25, 0.15, 0.0])
    assert torch.equal(
        (shares[0] + shares[1] + shares[2]).blocks["proj"], merge_ties(bank, density=1.0).blocks["proj"]
    )


@pytest.mark.parametrize("density", [0.0, 1.1])
def test_a_share_that_is_none_is_refused(density):
    with pytest.raises(BankError, match="density"):
        merge_ties(bank_of([1.0]), density=density)
