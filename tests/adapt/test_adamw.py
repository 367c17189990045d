"""AdamW and the schedule: torch's own numbers, runs that stay strangers, unit-length gradients."""

from __future__ import annotations

import math

import pytest
import torch

from atlas_engine.adapt.adamw import AdamState, adamw, keep_runs, per_run_norm, unit_norm
from atlas_engine.adapt.optimise import SCHEDULES, constant, cosine


def draws(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_it_takes_the_steps_of_torch_adamw(weight_decay):
    value, grads = draws(2, 5), draws(20, 2, 5, seed=1)
    reference = value.clone().requires_grad_()
    optimiser = torch.optim.AdamW([reference], lr=0.1, weight_decay=weight_decay)
    state = AdamState.zero(value)
    for grad in grads:
        value, state = adamw(value, grad, state, lr=0.1, weight_decay=weight_decay)
        reference.grad = grad.clone()
        optimiser.step()
    assert torch.allclose(
        value, reference, rtol=1e-5, atol=1e-6
    )  # the same formula, rounded in another order


def test_the_first_step_goes_by_the_learning_rate_whatever_the_gradient():
    value, _ = adamw(
        torch.ones(1, 1), torch.full((1, 1), 5.0), AdamState.zero(torch.ones(1, 1)), lr=0.1, weight_decay=0.0
    )
    assert value.item() == pytest.approx(0.9)


def test_decay_alone_pulls_towards_zero():
    start = torch.full((1, 3), 2.0)
    value, _ = adamw(start, torch.zeros(1, 3), AdamState.zero(start), lr=0.1, weight_decay=0.5)
    assert torch.allclose(value, torch.full((1, 3), 2.0 * 0.95))


def test_an_update_writes_to_none_of_its_arguments():
    value, grad = draws(2, 3), draws(2, 3, seed=1)
    state = AdamState.zero(value)
    kept = [tensor.clone() for tensor in (value, grad, state.mean, state.square)]
    adamw(value, grad, state, lr=0.1, weight_decay=0.1)
    assert all(torch.equal(a, b) for a, b in zip(kept, (value, grad, state.mean, state.square), strict=True))


def test_runs_in_one_tensor_are_the_same_as_runs_alone_even_beside_nan():
    value, grad = draws(3, 4), draws(3, 4, seed=1)
    grad[1] = math.nan
    together, _ = adamw(value, unit_norm(grad), AdamState.zero(value), lr=0.1, weight_decay=0.1)
    for run in (0, 2):
        one = value[run : run + 1]
        alone, _ = adamw(one, unit_norm(grad[run : run + 1]), AdamState.zero(one), lr=0.1, weight_decay=0.1)
        assert torch.equal(together[run], alone[0])


def test_each_run_has_its_own_unit_gradient_and_zero_stays_zero():
    grad = torch.stack([100.0 * torch.ones(2, 3), torch.zeros(2, 3), 1e-6 * torch.ones(2, 3)])
    assert torch.allclose(per_run_norm(unit_norm(grad)), torch.tensor([1.0, 0.0, 1.0]))
    assert torch.equal(unit_norm(grad)[1], torch.zeros(2, 3))


def test_runs_are_kept_by_mask():
    new, old = torch.ones(2, 2, 2), torch.zeros(2, 2, 2)
    assert keep_runs(torch.tensor([True, False]), new, old).sum(dim=(1, 2)).tolist() == [4.0, 0.0]


def test_cosine_starts_at_one_without_warm_up_passes_half_in_the_middle_and_ends_near_zero():
    factors = [cosine(index, 100) for index in range(100)]
    assert factors[0] == 1.0
    assert factors[50] == pytest.approx(0.5)
    assert 0 < factors[-1] < 1e-3
    assert factors == sorted(factors, reverse=True)


def test_the_table_of_schedules_holds_what_it_names():
    assert SCHEDULES["cosine"] is cosine
    assert {constant(index, 7) for index in range(7)} == {1.0}
