"""The resident bank: what goes in comes out, selection shares, budgets are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from atlas_engine.bank import TaskVectorBank
from atlas_engine.bank.budget import plan_memory
from atlas_engine.bank.storage import STORAGES, storage_named, vector_nbytes
from atlas_engine.errors import BankError


def test_float32_gives_back_every_number(bank, tuned_vectors):
    for vector in tuned_vectors:
        again = bank.vector(vector.name)
        assert again.info == replace(vector.info, digest=vector.digest())
        assert all(torch.equal(again.blocks[name], tau) for name, tau in vector.blocks.items())


def test_a_bank_says_what_it_is(bank):
    assert repr(bank) == "TaskVectorBank(3 tasks × 32 blocks, float32, 10.7 MiB on cpu)"
    use = bank.memory()
    assert use.nbytes == bank.nbytes == sum(use.by_kind.values())
    assert use.nbytes_as_float32 == 4 * 3 * bank.blocks.numel


def test_the_fingerprint_is_of_the_vectors_not_of_their_storage(bank, tuned_vectors):
    assert bank.stored_as("int4").fingerprint == bank.fingerprint
    assert bank.select(bank.tasks[::-1]).fingerprint != bank.fingerprint
    changed = replace(tuned_vectors[0] * 2, name=tuned_vectors[0].name)
    assert TaskVectorBank.from_vectors([changed, *tuned_vectors[1:]]).fingerprint != bank.fingerprint


def test_vectors_that_do_not_mix_make_no_bank(tuned_vectors):
    a, b, _ = tuned_vectors
    with pytest.raises(BankError, match="different base models"):
        TaskVectorBank.from_vectors([a, replace(b, base="f" * 64)])
    with pytest.raises(BankError, match="one name"):
        TaskVectorBank.from_vectors([a, replace(b, name=a.name)])
    with pytest.raises(BankError, match="at least one"):
        TaskVectorBank.from_vectors([])


def test_select_keeps_the_order_asked_for(bank):
    some = bank.select(["checks", "stripes"])
    assert some.tasks == ("checks", "stripes")
    assert torch.equal(some.vectors_of("proj"), bank.vectors_of("proj")[[2, 0]])
    assert torch.equal(some.select(["stripes"]).vectors_of("proj"), bank.vectors_of("proj")[[0]])


def test_leaving_one_out_copies_nothing_and_keeping_one_lets_the_rest_go(bank):
    rest = bank.without(["disks"])
    assert rest.tasks == ("stripes", "checks")
    assert rest.panels is bank.panels
    one = bank.select(["disks"])
    assert one.nbytes == bank.nbytes // 3
    assert torch.equal(one.vectors_of("ln_pre.bias"), bank.vectors_of("ln_pre.bias")[[1]])


def test_an_unknown_task_is_met_with_the_nearest(bank):
    with pytest.raises(BankError, match="Did you mean 'stripes'"):
        bank.select(["stripe"])
    with pytest.raises(BankError, match="Did you mean 'disks'"):
        bank.without(["disk"])
    with pytest.raises(BankError, match="no task was selected"):
        bank.without(bank.tasks)


@pytest.mark.parametrize("storage", [*STORAGES, "low-rank-7"])
def test_memory_is_known_before_it_is_taken(bank, storage):
    each = vector_nbytes(bank.blocks, storage_named(storage))
    assert bank.stored_as(storage).nbytes == 3 * each


def test_a_budget_is_met_by_narrower_storage_first(bank):
    fit = bank.fit(bank.nbytes)
    assert (fit.bank, fit.plan.storage) == (bank, "float32")
    fit = bank.fit(bank.nbytes // 3)
    assert fit.plan.storage == fit.bank.storage == "int8"
    assert fit.bank.tasks == bank.tasks
    assert fit.bank.nbytes == fit.plan.nbytes <= bank.nbytes // 3


def test_a_smaller_budget_leaves_out_the_vector_that_helped_least(bank):
    room = 2 * vector_nbytes(bank.blocks, storage_named("int4"))
    fit = bank.fit(room + 10)
    assert fit.bank.tasks == ("disks", "checks")  # stripes gained 0.25, the others more
    assert fit.bank.nbytes <= room
    assert str(fit.plan).endswith("left out stripes")


def test_a_budget_below_one_vector_is_refused(bank):
    with pytest.raises(BankError, match="one vector takes"):
        bank.fit(1000)


def test_a_plan_never_widens(bank):
    wide = {"tasks": bank.tasks, "infos": bank.infos, "budget_nbytes": 2**40}
    for storage in STORAGES:
        assert plan_memory(bank.blocks, storage=storage, **wide).storage == storage
