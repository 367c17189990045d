"""The bank file: save → load → equal, and how a wrong file is refused."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open

from atlas_engine.bank import TaskVector, TaskVectorBank, bank_file
from atlas_engine.bank.bank_file import BankFile, find_bank, load_bank, save_bank
from atlas_engine.bank.storage import STORAGES
from atlas_engine.bank.tensor_file import TensorFile, checksum
from atlas_engine.errors import BankError


@pytest.fixture
def path(tmp_path, bank):
    save_bank(bank, tmp_path / "bank.safetensors")
    return tmp_path / "bank.safetensors"


def _same(one: TaskVectorBank, other: TaskVectorBank) -> bool:
    facts = (one.tasks, one.infos, one.blocks, one.base, one.storage, one.nbytes)
    same_facts = facts == (other.tasks, other.infos, other.blocks, other.base, other.storage, other.nbytes)
    return same_facts and all(torch.equal(one.vectors_of(b), other.vectors_of(b)) for b in one.blocks)


@pytest.mark.parametrize("storage", STORAGES)
def test_a_bank_comes_back_as_it_was_saved(tmp_path, bank, storage):
    stored = bank.stored_as(storage)
    save_bank(stored, tmp_path / "b.safetensors")
    assert _same(load_bank(tmp_path / "b.safetensors"), stored)


def test_blocks_of_odd_size_do_not_put_their_neighbours_out_of_line(tmp_path):
    base = {
        "conv1.weight": torch.zeros(129, 131),
        "proj": torch.zeros(131, 129),
        "ln_pre.bias": torch.zeros(7),
    }
    tuned = {
        name: torch.randn(w.shape, generator=torch.Generator().manual_seed(0)) for name, w in base.items()
    }
    odd = TaskVectorBank.from_vectors([TaskVector.between("odd", base=base, tuned=tuned)], storage="int8")
    save_bank(odd, tmp_path / "odd.safetensors")
    assert _same(load_bank(tmp_path / "odd.safetensors"), odd)


@pytest.mark.parametrize("storage", STORAGES)
def test_a_bank_of_one_vector_comes_back_in_every_storage(tmp_path, tuned_vectors, storage):
    alone = TaskVectorBank.from_vectors(tuned_vectors[:1], storage=storage)
    save_bank(alone, tmp_path / "b.safetensors")
    assert _same(load_bank(tmp_path / "b.safetensors"), alone)


def test_a_selection_is_saved_alone(tmp_path, bank):
    rest = bank.without(["disks"])
    save_bank(rest, tmp_path / "rest.safetensors")
    again = load_bank(tmp_path / "rest.safetensors")
    assert again.tasks == rest.tasks
    assert torch.equal(again.vectors_of("proj"), rest.vectors_of("proj"))
    assert again.nbytes == bank.nbytes * 2 // 3


def test_some_tasks_can_be_loaded_alone(path, bank):
    some = load_bank(path, tasks=["checks", "disks"])
    assert _same(some, TaskVectorBank.from_vectors([bank.vector("checks"), bank.vector("disks")]))
    with pytest.raises(BankError, match="Did you mean 'disks'"):
        load_bank(path, tasks=["disk"])


def test_all_tasks_can_be_loaded_in_another_order(path, bank):
    turned = load_bank(path, tasks=bank.tasks[::-1])
    assert turned.tasks == bank.tasks[::-1]
    assert torch.equal(turned.vectors_of("proj"), bank.vectors_of("proj").flip(0))


def test_a_budget_decides_before_anything_is_read(path, bank):
    small = load_bank(path, budget_nbytes=bank.nbytes // 3)
    assert small.storage == "int8"
    assert small.nbytes <= bank.nbytes // 3


def test_any_safetensors_reader_can_open_the_file(path, bank):
    with safe_open(path, framework="pt") as file:
        assert torch.equal(
            file.get_tensor("proj"),
            bank.vectors_of("proj").view(3, *bank.blocks[bank.blocks.index("proj")].shape),
        )
        manifest = json.loads(file.metadata()["manifest"])
    assert manifest["tasks"][1] == {
        "name": "disks",
        "dataset": "drawn-1",
        "accuracy_before": 0.25,
        "accuracy_after": 0.6,
        "centroid": list(bank.infos[1].centroid),
        "provenance": {"seed": "1"},
        "digest": bank.infos[1].digest,
    }


def test_an_open_file_knows_its_bank_and_reads_it_block_by_block(path, bank):
    with BankFile(path) as file:
        assert (file.tasks, file.blocks, file.base) == (bank.tasks, bank.blocks, bank.base)
        assert repr(file) == "BankFile('bank.safetensors', 3 tasks × 32 blocks, float32)"
        for panel in file.iter_panels():
            block = bank.blocks[panel.block_indices[0]]
            assert torch.equal(panel.decode(0, block.numel), bank.vectors_of(block))


@pytest.mark.parametrize("size", [0, 5, 9, 3000, -1])
def test_a_truncated_file_is_refused(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BankError, match=r"is damaged|is not a bank file"):
        load_bank(path)


def test_a_file_with_something_behind_it_is_refused(path):
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(BankError, match="bytes where"):
        load_bank(path)


@pytest.mark.parametrize("where", [0.2, 0.5, 0.99])
def test_one_flipped_bit_is_found(path, where):
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 1
    path.write_bytes(data)
    with pytest.raises(BankError, match="checksum"):
        load_bank(path)
    with pytest.raises(BankError, match="checksum"), BankFile(path) as file:
        list(file.iter_panels())


@pytest.mark.parametrize(("old", "new"), [(b"0.25", b"0.95"), (b"stripes", b"strikes"), (b"[0,", b"[4,")])
def test_an_altered_manifest_is_found(path, old, new):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    with pytest.raises(BankError, match=r"damaged|not a bank file"):
        load_bank(path)


@pytest.mark.parametrize("content", [b"", b"{}", b"\x89PNG\r\n\x1a\n" + bytes(100), b"\xff" * 64])
def test_a_foreign_file_is_refused(tmp_path, content):
    path = tmp_path / "photo.safetensors"
    path.write_bytes(content)
    with pytest.raises(BankError, match="not a bank file"):
        load_bank(path)


def test_another_safetensors_file_is_refused(tmp_path, theta0):
    from safetensors.torch import save_file

    save_file(theta0, tmp_path / "model.safetensors")
    with pytest.raises(BankError, match="not a bank file"):
        load_bank(tmp_path / "model.safetensors")
    with pytest.raises(BankError, match="cannot open"):
        load_bank(tmp_path / "nowhere.safetensors")


@pytest.fixture
def banks(tmp_path, monkeypatch):
    """The folder of built banks, in a place of its own."""
    monkeypatch.setattr(bank_file, "assets_folder", lambda: tmp_path / "assets")
    monkeypatch.setattr(bank_file, "cache_folder", lambda: tmp_path / "cache")
    bank_file.banks_folder().mkdir(parents=True)
    return bank_file.banks_folder()


def test_a_bank_is_found_by_the_weights_it_was_made_for(banks, bank, theta0):
    (banks / "a.safetensors").write_bytes(b"no bank at all")
    assert find_bank(theta0) is None
    save_bank(bank, banks / "b.safetensors")
    assert find_bank(theta0) == banks / "b.safetensors"
    assert find_bank({name: weights + 1 for name, weights in theta0.items()}) is None


def test_finding_a_bank_reads_no_tensor_and_hashes_no_tower_that_no_bank_fits(
    banks, bank, theta0, monkeypatch
):
    save_bank(bank, banks / "b.safetensors")
    monkeypatch.setattr(TensorFile, "_read", lambda *_: pytest.fail("a tensor was read"))
    assert find_bank(theta0) == banks / "b.safetensors"
    monkeypatch.setattr(bank_file, "fingerprint", lambda _: pytest.fail("the tower was hashed"))
    assert find_bank({"proj": theta0["proj"]}) is None


@pytest.fixture
def little_room():
    """No file of this process may grow beyond 100 kB: writing fails half-way, as on a full disk."""
    resource = pytest.importorskip("resource", reason="needs a limit on file size")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_save_that_fails_half_way_leaves_the_old_file(path, bank, little_room):
    before = path.read_bytes()
    with pytest.raises(
        BankError, match=r"cannot write bank.safetensors: .* What was there before is unharmed"
    ):
        save_bank(bank.stored_as("int8"), path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["bank.safetensors"]


def test_a_checksum_sees_one_bit_a_swap_and_the_length():
    data = torch.randint(0, 256, (300_001,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    print0 = checksum(data)
    for at in (0, 12345, 299_999, 300_000):
        other = data.clone()
        other[at] ^= 1
        assert checksum(other) != print0
    swapped = data.clone()
    swapped[:8], swapped[8000:8008] = data[8000:8008], data[:8]
    assert checksum(swapped) != print0
    assert checksum(data[:-1]) != print0
    assert checksum(data[1:].clone()) == checksum(data[1:])  # where it lies in memory does not matter
