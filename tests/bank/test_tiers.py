"""A bank on disk: what is read of it and when, and that its numbers are those of a resident bank."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.bank import BankFile, TaskVectorBank, load_bank, save_bank
from atlas_engine.bank.index import build_index, index_path, open_index
from atlas_engine.bank.residency import Tier
from atlas_engine.bank.tiered import TieredBank
from atlas_engine.errors import BankError
from studies.banks.dummy import dummy_bank

LARGE = 2**30


@pytest.fixture(params=["float32", "float16", "int8", "int4", "low-rank-4"])
def stored(request, bank):
    return bank.stored_as(request.param)


@pytest.fixture
def path(tmp_path, bank):
    """A file of forty vectors: three trained ones and dummies."""
    save_bank(dummy_bank(bank.stored_as("int8"), vectors=40), tmp_path / "bank.safetensors")
    return tmp_path / "bank.safetensors"


@pytest.fixture
def tiered(path):
    opened = TieredBank.open(path, memory_nbytes=LARGE)
    yield opened
    opened.close()


def equal_numbers(one: TaskVectorBank, other: TaskVectorBank) -> bool:
    return all(torch.equal(one.vectors_of(block), other.vectors_of(block)) for block in one.blocks)


def test_vectors_from_disk_are_those_of_the_resident_bank_bit_for_bit(stored, tmp_path):
    path = tmp_path / "bank.safetensors"
    save_bank(stored, path)
    tiered = TieredBank.open(path, memory_nbytes=LARGE)
    names = ["disks", "stripes"]
    assert equal_numbers(tiered.extract(names), stored.extract(names))
    assert tiered.fingerprint == stored.fingerprint
    blocks = stored.blocks.names[3:9]
    part = tiered.select_blocks(blocks)
    assert part.blocks == stored.select_blocks(blocks).blocks
    assert equal_numbers(part.select(names), stored.select_blocks(blocks).select(names))
    assert torch.equal(tiered.block_norms, stored.block_norms)
    tiered.close()


def test_opening_reads_the_header_and_the_index_and_no_vector(path, tmp_path):
    with BankFile(path) as file:
        open_index(file)
        nbytes = file.nbytes
    whole = path.read_bytes()
    hollow = tmp_path / "hollow.safetensors"
    # the same header, and a hole where the numbers were
    with hollow.open("wb") as out:
        out.write(whole[: len(whole) - nbytes])
        out.truncate(len(whole))
    tiered = TieredBank.open(hollow, memory_nbytes=LARGE)
    assert len(tiered) == 40
    assert tiered.tiers.read_nbytes == 0
    assert (
        len(tiered.select_blocks(tiered.blocks.names[:4]).select(tiered.tasks[:3])) == 3
    )  # still only views
    with pytest.raises(BankError, match="does not match its checksum"):
        tiered.extract(["stripes"])
    tiered.close()


def test_choosing_few_vectors_reads_their_bytes_alone(tiered):
    tiered.extract(["stripes", "dummy-007"])
    assert tiered.tiers.read_nbytes == 2 * tiered.tiers.file.nbytes // 40
    tiered.extract(["stripes", "dummy-007"])  # from memory
    assert tiered.tiers.read_nbytes == 2 * tiered.tiers.file.nbytes // 40


def test_a_changed_byte_of_a_vector_is_noticed_when_it_is_read(path):
    with BankFile(path) as file:
        open_index(file)
    with path.open("r+b") as out:
        out.seek(-1, 2)
        last = out.read(1)
        out.seek(-1, 2)
        out.write(bytes([last[0] ^ 1]))
    tiered = TieredBank.open(path, memory_nbytes=LARGE)
    tiered.extract(tiered.tasks[:1])  # another vector is sound
    with pytest.raises(BankError, match="damaged"):
        tiered.extract(tiered.tasks[-1:])
    tiered.close()


def test_an_index_is_made_once_and_a_damaged_one_again(path):
    with BankFile(path) as file:
        made = open_index(file)
        place = index_path(file)
        assert torch.equal(build_index(file).sums, made.sums)
        written = place.stat().st_mtime_ns
        open_index(file)
        assert place.stat().st_mtime_ns == written
        place.write_bytes(b"nothing of use")
        assert torch.equal(open_index(file).sums, made.sums)


def test_the_lowest_score_leaves_memory_first_and_of_equals_the_oldest(path):
    with BankFile(path) as file:
        each = file.nbytes // len(file.tasks)
    tiered = TieredBank.open(path, memory_nbytes=2 * each)
    tiered.rate({"stripes": 0.9, "disks": 0.2, "checks": 0.5})
    for task in ("disks", "stripes", "checks"):
        tiered.extract([task])
    held = {place.task for place in tiered.residency().vectors if place.memory_nbytes}
    assert held == {"stripes", "checks"}
    tiered.rate({})
    tiered.extract(["stripes"])  # used last, so the other one goes
    tiered.extract(["disks"])
    held = {place.task for place in tiered.residency().vectors if place.memory_nbytes}
    assert held == {"stripes", "disks"}
    assert tiered.tiers.memory_nbytes <= 2 * each
    tiered.close()


def test_without_memory_every_use_reads_the_disk_and_gives_the_same_numbers(path, tiered):
    bare = TieredBank.open(path, memory_nbytes=0)
    names = ["checks", "dummy-011"]
    assert equal_numbers(bare.extract(names), tiered.extract(names))
    assert bare.tiers.memory_nbytes == 0
    bare.extract(names)
    assert bare.tiers.read_nbytes == 2 * tiered.tiers.read_nbytes
    bare.close()


def test_vectors_read_ahead_are_not_read_again(tiered):
    part = tiered.select_blocks(tiered.blocks.names[-6:])
    part.prefetch(["checks", "dummy-002"])
    tiered.tiers.wait()
    fetched = tiered.tiers.read_nbytes
    assert fetched > 0
    assert {place.task: place.tier for place in tiered.residency().vectors}["dummy-002"] is Tier.memory
    part.extract(["checks", "dummy-002"])
    assert tiered.tiers.read_nbytes == fetched


def test_reading_ahead_pushes_out_lower_scores_only(path):
    with BankFile(path) as file:
        each = file.nbytes // len(file.tasks)
    tiered = TieredBank.open(path, memory_nbytes=2 * each)
    tiered.rate({"stripes": 0.9, "disks": 0.8, "checks": 0.1, "dummy-001": 0.85})
    tiered.extract(["stripes", "disks"])
    tiered.prefetch(["checks"])
    tiered.tiers.wait()
    assert tiered.tiers.read_nbytes == 2 * each
    tiered.prefetch(["dummy-001"])
    tiered.tiers.wait()
    held = {place.task for place in tiered.residency().vectors if place.memory_nbytes}
    assert held == {"stripes", "dummy-001"}
    tiered.close()


def test_the_residency_tells_device_memory_and_disk(tiered):
    part = tiered.extract(["stripes"])
    tiered.prefetch(["checks"])
    tiered.tiers.wait()
    found = tiered.residency()
    assert [found.count(tier) for tier in Tier] == [1, 1, 38]
    assert found.device_nbytes == part.nbytes
    assert "1 on cpu" in str(found)
    assert "38 on disk" in str(found)
    del part  # what a run held leaves the device with it
    assert tiered.residency().count(Tier.device) == 0


def test_a_resident_bank_is_all_on_its_device(bank):
    found = bank.residency()
    assert found.count(Tier.device) == len(bank)
    assert str(found).startswith("3 vectors: 3 on cpu (")


def test_what_needs_every_vector_loads_the_whole_bank_once(path, tiered):
    whole = load_bank(path)
    assert equal_numbers(
        TaskVectorBank(
            tiered.panels,
            tasks=tiered.tasks,
            blocks=tiered.blocks,
            base=tiered.base,
            infos=tiered.infos,
            storage=tiered.storage,
        ),
        whole,
    )
    assert tiered.select_blocks(tiered.blocks.names).panels[0] is tiered.panels[0]
    assert tiered.residency().count(Tier.device) == 40


def test_a_closed_bank_lets_go_of_its_file(path):
    tiered = TieredBank.open(path, memory_nbytes=LARGE)
    tiered.prefetch(tiered.tasks)
    tiered.close()
    tiered.prefetch(tiered.tasks)  # asks for nothing any more
    assert tiered.tiers.memory_nbytes == 0
