"""The resident bank: what goes in comes out, selections share memory, budgets are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from atlas_engine.bank import TaskVectorBank
from atlas_engine.bank.budget import plan_memory
from atlas_engine.bank.storage import STORAGES, find_storage, vector_nbytes
from atlas_engine.clip.tower_split import split_tower
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.errors import BankError
from tests.bank.tuned import TASKS, drawn

SOME_STORAGES = ("float32", "float16", "int8", "int4", "low-rank-4")
SELECTIONS = {"all": TASKS, "shared rows": ("checks", "stripes"), "copied rows": ("disks",)}
LATE = 0.4  # of the tower: its second layer and what follows, large blocks and small


def test_float32_gives_back_every_number(bank, tuned_vectors):
    for vector in tuned_vectors:
        again = bank.vector(vector.name)
        assert again.info == replace(vector.info, digest=vector.digest())
        assert all(torch.equal(again.blocks[name], tau) for name, tau in vector.blocks.items())


def test_a_bank_says_what_it_is(bank):
    assert repr(bank) == "TaskVectorBank(3 tasks × 32 blocks, float32, 10.7 MiB on cpu)"


def test_the_fingerprint_is_of_the_vectors_not_of_their_storage(bank, tuned_vectors):
    assert bank.stored_as("int4").fingerprint == bank.fingerprint
    assert bank.select(bank.tasks[::-1]).fingerprint != bank.fingerprint
    doubled = {name: 2 * tau for name, tau in tuned_vectors[0].blocks.items()}
    changed = replace(tuned_vectors[0], blocks=doubled)
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
    each = vector_nbytes(bank.blocks, find_storage(storage))
    assert bank.stored_as(storage).nbytes == 3 * each


def test_a_budget_is_met_by_narrower_storage_first(bank):
    fit = bank.fit(bank.nbytes)
    assert (fit.bank, fit.plan.storage) == (bank, "float32")
    fit = bank.fit(bank.nbytes // 3)
    assert fit.plan.storage == fit.bank.storage == "int8"
    assert fit.bank.tasks == bank.tasks
    assert fit.bank.nbytes == fit.plan.nbytes <= bank.nbytes // 3


def test_a_smaller_budget_leaves_out_the_vector_that_helped_least(bank):
    room = 2 * vector_nbytes(bank.blocks, find_storage("int4"))
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


# ---- some blocks only


@pytest.fixture(scope="module")
def late(clip):
    part = split_tower(clip.visual, share=LATE)
    assert part.cut.name == "transformer.resblocks.1"
    return part


def halves(theta0, bank, late, layout=None):
    """The composer of the whole tower, that of the late part, and the same λ for both."""
    whole, part = Composer(theta0, bank, layout), Composer(theta0, bank.select_blocks(late.names), layout)
    draw = torch.Generator().manual_seed(5)
    lam = 0.5 * torch.randn(part.shape, generator=draw)
    coefficients = Coefficients(lam, part.layout, bank.tasks, part.blocks)
    return whole, part, lam, coefficients.widened(bank.blocks).values


def columns(bank, late):
    return [m for m, block in enumerate(bank.blocks) if block.name in late.names]


@pytest.mark.parametrize("tasks", SELECTIONS.values(), ids=SELECTIONS)
@pytest.mark.parametrize("storage", SOME_STORAGES)
def test_late_blocks_are_composed_as_in_the_whole_bank(bank, theta0, late, grads, storage, tasks):
    some = bank.stored_as(storage).select(tasks)
    whole, part, lam, widened = halves(theta0, some, late)
    wanted, found = whole.compose(widened), part.compose(lam)
    assert tuple(found) == part.blocks.names == late.names
    for name in theta0:  # the same sums over the same numbers, whatever lies beside them
        assert torch.equal(wanted[name], found.get(name, theta0[name])), name
    # A bundle of other size may be summed in another order: float32's last digits.
    gradient = part.gradient({name: grads[name] for name in late.names})
    torch.testing.assert_close(gradient, whole.gradient(grads)[:, columns(some, late)], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("layout", [Layout("isotropic"), Layout("matrices"), Layout(partitions=3, seed=2)])
def test_every_layout_composes_late_blocks_as_the_widened_one_does(bank, theta0, late, layout):
    _, part, lam, widened = halves(theta0, bank, late, layout)
    per_block = Layout(partitions=layout.partitions, seed=layout.seed)
    wanted, found = Composer(theta0, bank, per_block).compose(widened), part.compose(lam)
    assert all(torch.equal(wanted[name], found.get(name, theta0[name])) for name in theta0)


def test_a_step_of_the_late_encoder_has_the_gradient_of_the_whole_one(clip, bank, theta0, late):
    whole, part, lam, widened = halves(theta0, bank, late)
    images, labels = drawn(0, torch.Generator().manual_seed(7))
    head = torch.eye(4, 32)

    def step(encoder, lam, images):
        composition = encoder.at(lam)
        loss = cross_entropy(composition.logits(images, head, logit_scale=10.0), labels)
        loss.backward()
        return loss.detach(), composition.gradient()

    wanted_loss, wanted = step(ComposedEncoder(clip.visual, whole), widened, images)
    loss, gradient = step(ComposedEncoder(late.suffix, part), lam, late.run_prefix(images))
    assert torch.equal(loss, wanted_loss)
    torch.testing.assert_close(gradient, wanted[:, columns(bank, late)], rtol=1e-5, atol=1e-8)  # as above
    assert gradient.abs().min() > 0


def test_large_blocks_are_shared_and_only_late_ones_are_held(bank, late):
    some = bank.select_blocks(late.names)
    own = {panel.block_indices[0]: panel for panel in some.panels[:-1]}
    for m, panel in own.items():
        home = bank._places[bank.blocks.index(some.blocks[m])][0]
        assert panel.data.data_ptr() == home.data.data_ptr()
    assert (some.base, some.tasks, some.infos, some.storage) == (bank.base, bank.tasks, bank.infos, "float32")
    assert some.nbytes < bank.nbytes
    assert some.fingerprint != bank.fingerprint


def test_blocks_keep_the_order_of_the_table_and_their_facts(bank):
    some = bank.select_blocks(["proj", "ln_post.bias", "proj", "conv1.weight"])
    assert some.blocks.names == ("proj", "conv1.weight", "ln_post.bias")
    assert all(block == bank.blocks[bank.blocks.index(block)] for block in some.blocks)
    for block in some.blocks:
        assert torch.equal(some.vectors_of(block), bank.vectors_of(block))


def test_narrowing_twice_or_with_selection_in_any_order_is_the_same(bank, late):
    names = late.names[3:]
    once = bank.without(["disks"]).select_blocks(names)
    again = bank.select_blocks(late.names).select_blocks(names).without(["disks"])
    assert once.tasks == again.tasks
    assert once.blocks == again.blocks
    assert all(torch.equal(once.vectors_of(block), again.vectors_of(block)) for block in once.blocks)


def test_all_blocks_are_the_bank_itself(bank):
    assert bank.select_blocks(bank.blocks.names) is bank


def test_blocks_of_one_size_only_make_a_bank_too(bank):
    for name in ("proj", "ln_post.bias", "transformer.resblocks.0.mlp.c_fc.weight"):
        some = bank.select_blocks([name])
        assert torch.equal(some.vectors_of(name), bank.vectors_of(name))
        assert bank.select_blocks(name).blocks == some.blocks


def test_a_name_that_is_not_there_is_met_with_the_nearest_and_none_is_refused(bank):
    with pytest.raises(BankError, match="Did you mean 'proj'"):
        bank.select_blocks(["prj"])
    with pytest.raises(BankError, match="no block was named"):
        bank.select_blocks([])
