"""Blocks split by rows: equal to the naive formula in every storage, for blocks of every shape."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import Tensor

from atlas_engine.bank import TaskVector, TaskVectorBank
from atlas_engine.bank.storage import SMALL, STORAGES
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.compose import Composer

SHAPES = {
    "scalar": (),
    "vector": (9,),
    "one row": (1, 30),
    "rows behind an axis of 1": (1, 7, 3),
    "depthwise": (6, 1, 3, 3),
    "matrix": (5, 8),
    "large vector": (SMALL + 7,),
    "large behind an axis of 1": (1, 24, 768),
    "large depthwise": (700, 1, 5, 5),
    "large matrix": (96, 320),
    "large and long": (3, 8192),
    "odd columns": (130, 202),
}
TASKS = 9  # more than machine code takes at a time
LARGE = (512, 272)  # with TASKS more than 2^20 numbers, so that machine code runs where there is numba


@functools.cache
def base_weights() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=draw) for name, shape in {**SHAPES, "w": LARGE}.items()}


@functools.cache
def bank(storage: str) -> TaskVectorBank:
    draw = torch.Generator().manual_seed(1)
    vectors = [
        TaskVector(
            f"t{t}", {n: 1e-2 * torch.randn(w.shape, generator=draw) for n, w in base_weights().items()}, "b"
        )
        for t in range(TASKS)
    ]
    return TaskVectorBank.from_vectors(vectors, storage=storage)


def composer(storage: str, partitions: int) -> Composer:
    return Composer(base_weights(), bank(storage), Layout(partitions=partitions, seed=4, split_by="rows"))


def drawn_lam(shape: tuple[int, ...]) -> Tensor:
    return 0.5 * torch.randn(shape, generator=torch.Generator().manual_seed(2))


def drawn_gradients(runs: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(3)
    return {name: torch.randn(runs, *w.shape, generator=draw) for name, w in base_weights().items()}


def naive_compose(one: Composer, lam: Tensor) -> dict[str, Tensor]:
    """θ(λ) for λ (T M K) in float64: λ spelled out for each number, row by row."""
    theta = {}
    for m, block in enumerate(one.blocks):
        rows = next((size for size in block.shape if size > 1), 1)
        part = one.layout.split(rows).long().repeat_interleave(block.numel // rows)
        tau = one.bank.vectors_of(block.name).double()
        moved = (lam[:, m].double()[:, part] * tau).sum(0)
        theta[block.name] = base_weights()[block.name].double() + moved.view(block.shape)
    return theta


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("storage", STORAGES)
def test_both_products_equal_autograd_through_the_naive_formula(storage, runs):
    one = composer(storage, 20)
    lam, pull = drawn_lam((runs, *one.shape)), drawn_gradients(runs)
    theta, grad = one.compose(lam), one.gradient(pull)
    for run in range(runs):
        leaf = lam[run].clone().requires_grad_()
        wanted = naive_compose(one, leaf)
        sum((wanted[name] * pull[name][run]).sum() for name in wanted).backward()
        for name, weights in wanted.items():
            moved = (weights - base_weights()[name]).abs().max().item()
            error = (theta[name][run] - weights).abs().max().item()
            assert error <= 1e-5 * moved + 5e-7, name  # float32 sums, and an ulp of the base
        # a coefficient sums up to 20,000 products of about 1e-2 in float32
        assert torch.allclose(grad[run], leaf.grad, rtol=0, atol=1e-5 * leaf.grad.abs().max().item())


@pytest.mark.parametrize("partitions", [2, 96, 130, 5000])
def test_as_many_parts_as_rows_and_more(partitions):
    one = composer("float32", partitions)
    lam, pull = drawn_lam(one.shape), {name: g[0] for name, g in drawn_gradients(1).items()}
    leaf = lam.clone().requires_grad_()
    wanted = naive_compose(one, leaf)
    sum((wanted[name] * pull[name]).sum() for name in wanted).backward()
    theta, grad = one.compose(lam), one.gradient(pull)
    for name, weights in wanted.items():
        assert torch.allclose(theta[name].double(), weights, rtol=1e-5, atol=1e-6), name
    assert torch.allclose(grad, leaf.grad, rtol=0, atol=1e-5 * leaf.grad.abs().max().item())
    for m, block in enumerate(one.blocks):
        assert torch.count_nonzero(grad[:, m, one.layout.unit_count(block) :]) == 0, "empty parts do nothing"


@pytest.mark.parametrize("storage", STORAGES)
def test_zero_coefficients_give_back_the_base_bit_for_bit(storage):
    one = composer(storage, 20)
    for lam in (one.initial(), torch.zeros(3, *one.shape)):
        theta = one.compose(lam)
        for name, weights in base_weights().items():
            found = theta[name].reshape(-1, *weights.shape)
            assert all(torch.equal(own.view(torch.int32), weights.view(torch.int32)) for own in found)


@pytest.mark.parametrize("storage", STORAGES)
def test_equal_coefficients_of_all_parts_compose_like_one(storage):
    whole = Composer(base_weights(), bank(storage))
    lam = drawn_lam(whole.shape)
    together, parts = whole.compose(lam), composer(storage, 6)
    split = parts.compose(lam.unsqueeze(-1).expand(-1, -1, 6).contiguous())
    # without numba torch sums float16 in another kernel at K = 1, right to 11 bits
    for name, weights in together.items():
        assert torch.allclose(split[name], weights, rtol=0, atol=1e-4), name
    pull = {name: g[0] for name, g in drawn_gradients(1).items()}
    summed, wanted = parts.gradient(pull).sum(-1), whole.gradient(pull)
    assert torch.allclose(summed, wanted, rtol=0, atol=2e-3 * wanted.abs().max().item())


@pytest.mark.parametrize("storage", ["float32", "int4"])
def test_one_call_gives_the_same_bits_as_the_next(storage):
    one, pull = composer(storage, 20), drawn_gradients(2)
    lam = drawn_lam((2, *one.shape))
    first, second = one.compose(lam), one.compose(lam)
    assert torch.equal(first.flat, second.flat)
    assert torch.equal(one.gradient(pull), one.gradient(pull))


def test_a_part_is_whole_rows():
    one, m = composer("float32", 20), list(base_weights()).index("large matrix")
    lam = one.initial()
    lam[2, m, 7] = 1.0
    moved = (one.compose(lam)["large matrix"] - base_weights()["large matrix"]).ne(0).float().mean(dim=1)
    assert sorted(set(moved.round().tolist())) == [0.0, 1.0]
    assert int(moved.round().sum()) == math.ceil(96 / 20)  # the first parts have one row more
    assert torch.equal(moved.round() == 1, one.layout.split(96) == 7)
