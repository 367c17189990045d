"""Ours and the naive formulation are asked one question and give one answer, and wrong ones are seen.

A tower without layers has all kinds of blocks that matter here: large, small, and one that is looked at.
"""

from __future__ import annotations

import pytest
import torch

from studies.speed.composition import ELEVEN_BITS, FORWARDS, CompositionCase, ExpectedAnswer, draw_tower
from studies.speed.engine import EngineFormulation, measure_kernel
from studies.speed.naive import NOT_WIDENED, ONE_FORWARD, WHOLE_STEP, naive_calls


@pytest.fixture(scope="module", params=["float32", "float16"])
def case(request):
    return CompositionCase.draw(draw_tower(layers=0), storage=request.param)


@pytest.fixture(scope="module")
def expected(case):
    return ExpectedAnswer.of(case)


@pytest.fixture(scope="module")
def naive(case):
    return naive_calls(0, case.bank.storage)


def test_ours_gives_the_expected_answer(case, expected):
    ours = EngineFormulation(case)
    assert expected.matches(ours.one_forward())
    assert expected.matches(ours.in_new_memory())
    assert expected.matches(ours.whole_step(), forwards=FORWARDS)
    assert not expected.matches(ours.whole_step()), "two forwards are not one"


def test_naive_gives_the_expected_answer_to_a_case_it_drew_itself(naive, expected):
    assert expected.matches(naive[ONE_FORWARD]())
    assert expected.matches(naive[WHOLE_STEP](), forwards=FORWARDS)


def test_naive_that_is_not_widened_gives_eleven_bits_of_a_float16_answer(naive, case, expected):
    answer = naive[NOT_WIDENED]()
    assert expected.matches(answer, tolerance=ELEVEN_BITS)
    assert expected.matches(answer) == (case.bank.storage == "float32")


def test_a_wrong_weight_and_a_wrong_gradient_are_seen(case, expected):
    theta, grad = EngineFormulation(case).one_forward()
    assert not expected.matches((theta + 1e-5, grad))  # a hundredth of what fine-tuning moves
    assert not expected.matches((theta, 1.001 * grad))
    assert not expected.matches((theta, grad.flip(0)))


def test_a_tower_is_the_same_each_time_and_leaves_the_shared_generator_alone():
    torch.manual_seed(5)
    first, second = draw_tower(layers=0), draw_tower(layers=0)
    drawn = torch.rand(1)
    assert torch.equal(first.proj, second.proj)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))


def test_the_measures_of_a_bank_are_four_bars_with_a_note_on_memory():
    found = measure_kernel(CompositionCase.draw(draw_tower(layers=0), storage="float16"), layers=0, repeat=1)
    assert [bar.measure for bar in found.bars] == [
        "float16: naive / ours, compose + gradient",
        "float16: ours / reading the bank each way",
        "float16: naive / ours, a step of 2 forwards",
        "float16: peak memory beyond bank and base, ours / naive",
    ]
    assert all(bar.value > 0 for bar in found.bars[:3])
    assert "MiB" in found.notes["float16, peak beyond bank and base"]
