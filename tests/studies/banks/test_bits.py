"""Storage formats compared: bytes, nearness, time, and accuracy on the same problems."""

from __future__ import annotations

import pytest

from atlas_engine.bank.edit import fidelity
from atlas_engine.errors import BankError, EvalError
from studies.banks.bits import (
    StorageCost,
    accuracy_loss,
    bits_table,
    cost_table,
    measure_costs,
    storage_variants,
    store_in_formats,
)
from studies.banks.trials import run_trials
from studies.grid import Ledger
from studies.problems.few_shot import draw_problem
from tests.studies.banks.fake_trials import fake_trial
from tests.studies.drawn_tasks import QUICK

STORAGES = ("float16", "int4")


@pytest.fixture(scope="module")
def stored(bank):
    return store_in_formats(bank, STORAGES)


@pytest.fixture(scope="module")
def problem(tiny, folder):
    return draw_problem(folder, tiny.backbone.preprocessing, settings=QUICK, seed=0)


def test_float32_comes_first_and_every_format_once(stored, bank):
    assert list(stored) == ["float32", "float16", "int4"]
    assert stored["float32"] is bank
    assert [copy.storage for copy in stored.values()] == list(stored)
    assert [variant.name for variant in storage_variants(stored)] == list(stored)
    assert len({variant.identity for variant in storage_variants(stored)}) == 3


def test_costs_are_the_banks_own_bytes_and_nearness(tiny, stored, problem):
    rows = {cost.storage: cost for cost in measure_costs(tiny, stored, problem, ledger=Ledger(), repeat=2)}
    assert list(rows) == list(stored)
    for name, cost in rows.items():
        near = fidelity(stored["float32"], stored[name]).values()
        assert cost.nbytes == stored[name].nbytes
        assert cost.cosine == pytest.approx(sum(one.cosine for one in near) / 3)
        assert cost.seconds > 0
        assert (cost.time_ratio == 1.0) if name == "float32" else (cost.time_ratio > 0)
    assert rows["float32"].relative_error == 0
    assert rows["float32"].gradient_cosine == pytest.approx(1.0)
    assert rows["float16"].gradient_cosine > 0.9999
    assert rows["int4"].gradient_cosine > 0.99
    assert rows["float16"].nbytes < 0.6 * rows["float32"].nbytes
    assert 0 < rows["float16"].relative_error < 1e-3


def test_costs_are_measured_once(tiny, stored, problem, tmp_path):
    first = measure_costs(tiny, stored, problem, ledger=Ledger(tmp_path / "rows"), repeat=1)
    # repeat=0 would fail if anything were timed
    again = measure_costs(tiny, stored, problem, ledger=Ledger(tmp_path / "rows"), repeat=0)
    assert again == first
    assert all(isinstance(cost, StorageCost) for cost in first)


def test_a_loss_is_that_against_float32_on_the_same_problems(tiny, stored, folder):
    work = run_trials(tiny, storage_variants(stored), [folder], settings=QUICK, ledger=Ledger())
    trials = [trial for trial, _ in work]
    assert accuracy_loss(trials, "float32").mean == 0
    float32, float16 = ([t.accuracy for t in trials if t.arm == arm] for arm in ("float32", "float16"))
    expected = sum(b - a for a, b in zip(float32, float16, strict=True)) / 2
    assert accuracy_loss(trials, "float16").mean == pytest.approx(expected)
    assert abs(expected) < 0.1, "eleven bits are enough to learn with"


def test_a_bank_that_is_not_the_original_is_refused(bank):
    with pytest.raises(EvalError, match=r"stored as int8, .* Give the float32 bank"):
        store_in_formats(bank.stored_as("int8"))
    with pytest.raises(BankError, match="storage 'int7' is not known"):
        store_in_formats(bank, ["int7"])


# ---- the report, by numbers worked out by hand


def test_formats_are_listed_with_their_difference_to_float32():
    trials = [
        fake_trial(arm, "pets", seed, accuracy)
        for seed, accuracies in enumerate([(0.6, 0.58), (0.7, 0.64)])
        for arm, accuracy in zip(("float32", "int4"), accuracies, strict=True)
    ]
    rows = {row[0]: row[1:] for row in bits_table(trials).rows}
    assert rows["float32"] == ("65.0 ± 7.1", "65.0 ± 7.1", "+0.0 ± 0.0")
    assert rows["int4"] == ("61.0 ± 4.2", "61.0 ± 4.2", "-4.0 ± 2.8")
    assert rows["zero-shot"] == ("50.0 ± 0.0", "50.0 ± 0.0", "–")


def test_costs_are_ratios_to_the_first_format():
    found = [
        StorageCost("float32", 4 * 2**20, 0.010, 1.0, 1.0, 0.0, 1.0),
        StorageCost("int8", 2**20, 0.005, 0.5, 0.99995, 0.01, 0.9999),
    ]
    assert cost_table(found).rows[1] == ("int8", "1.0", "0.25", "5.0", "0.50", "0.99995", "1.00", "0.99990")
