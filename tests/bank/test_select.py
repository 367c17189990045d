"""Selection under a budget, from a resident bank and from a file that is never loaded whole."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.bank.bank_file import BankFile, save_bank
from atlas_engine.bank.select import (
    gradient_scores,
    mix_by_gradient,
    select_by_features,
    select_by_gradient,
    select_random,
)
from atlas_engine.errors import BankError


@pytest.fixture
def file(tmp_path, bank):
    save_bank(bank, tmp_path / "bank.safetensors")
    with BankFile(tmp_path / "bank.safetensors") as file:
        yield file


def test_scores_are_the_absolute_inner_products(bank, grads):
    scores = gradient_scores(bank, grads)
    for m, block in enumerate(bank.blocks):
        wanted = (bank.vectors_of(block).double() @ grads[block.name].flatten().double()).abs()
        assert torch.allclose(scores[:, m].double(), wanted, rtol=1e-4, atol=1e-9)


def test_a_file_gives_the_same_answers_as_the_resident_bank(file, bank, grads):
    assert torch.equal(gradient_scores(file, grads), gradient_scores(bank, grads))
    assert select_by_gradient(file, grads, budget=2) == select_by_gradient(bank, grads, budget=2)
    one, other = (mix_by_gradient(source, grads, budget=2) for source in (file, bank))
    assert one.origin == other.origin
    assert all(torch.equal(one.bank.vectors_of(b), other.bank.vectors_of(b)) for b in bank.blocks)


def test_the_vector_trained_on_the_same_pattern_is_found_by_gradient(bank, grads):
    assert select_by_gradient(bank, grads, budget=1) == ("stripes",)


def test_each_block_of_a_mixed_vector_comes_from_the_task_that_scores_best_there(bank, grads):
    mixture = mix_by_gradient(bank, grads, budget=2)
    scores = gradient_scores(bank, grads)
    assert mixture.bank.tasks == ("mix-1", "mix-2")
    assert len(mixture.origin) == 2
    for m, block in enumerate(bank.blocks):
        best, second = scores[:, m].argsort(descending=True)[:2].tolist()
        assert (mixture.origin[0][m], mixture.origin[1][m]) == (bank.tasks[best], bank.tasks[second])
        assert torch.equal(mixture.bank.vectors_of(block), bank.vectors_of(block)[[best, second]])


def test_the_whole_budget_keeps_every_number(bank, grads):
    mixture = mix_by_gradient(bank, grads, budget=3)
    assert mixture.bank.nbytes == bank.nbytes
    assert {tuple(sorted(column)) for column in zip(*mixture.origin, strict=True)} == {
        tuple(sorted(bank.tasks))
    }


def test_a_selected_bank_is_a_source_too(bank, grads):
    rest = bank.without(["stripes"])
    difference = (gradient_scores(rest, grads) - gradient_scores(bank, grads)[1:]).abs()
    # the two sum the same float32 products in an order of their own: off by some eps of |τ|·|g|
    lengths = torch.stack([grads[block.name].norm() for block in bank.blocks])
    assert (difference <= 4 * torch.finfo(torch.float32).eps * rest.block_norms * lengths).all()


def test_features_find_the_nearest_data_set(file):
    feature = torch.tensor([0.2, 0.1, 0.9, 0.1])
    assert select_by_features(file, feature, budget=3) == ("checks", "stripes", "disks")
    with pytest.raises(BankError, match="5 numbers"):
        select_by_features(file, torch.ones(5), budget=1)


def test_features_need_centroids(bank, grads):
    mixed = mix_by_gradient(bank, grads, budget=2).bank
    with pytest.raises(BankError, match=r"no feature centroid is stored for mix-1, mix-2"):
        select_by_features(mixed, torch.ones(4), budget=1)


def test_a_random_choice_is_that_of_its_seed(bank):
    draws = {select_random(bank, budget=2, seed=seed) for seed in range(20)}
    assert select_random(bank, budget=2, seed=3) == select_random(bank, budget=2, seed=3)
    assert len(draws) == 6  # every ordered pair of three turns up
    assert all(len(set(draw)) == 2 for draw in draws)


@pytest.mark.parametrize("budget", [0, 4])
def test_a_budget_out_of_range_is_refused(bank, budget):
    with pytest.raises(BankError, match=f"budget={budget} is out of range"):
        select_random(bank, budget=budget, seed=0)


def test_a_missing_gradient_is_named(bank, grads):
    with pytest.raises(BankError, match="no gradient was given for block 'proj'"):
        gradient_scores(bank, {name: g for name, g in grads.items() if name != "proj"})
