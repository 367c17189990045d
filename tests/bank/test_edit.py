"""Edited banks: files that grow by one vector, TIES against worked examples, and fidelity."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from atlas_engine.bank import TaskVector, TaskVectorBank, block_table
from atlas_engine.bank.bank_file import BankFile, load_bank, save_bank
from atlas_engine.bank.edit import (
    add_vector_to_file,
    check_bank_target,
    check_kind_mixes,
    fidelity,
    join_banks,
    merge_ties,
    ties_contributions,
    with_vector,
)
from atlas_engine.bank.tensor_file import TensorFile
from atlas_engine.bank.vector import VECTOR_KINDS, VectorInfo
from atlas_engine.errors import BankError


@pytest.fixture(scope="module")
def newer(theta0):
    draw = torch.Generator().manual_seed(5)
    tuned = {n: w + 1e-3 * torch.randn(w.shape, generator=draw) for n, w in theta0.items()}
    return TaskVector.between("dots", base=theta0, tuned=tuned)


def bits(bank, task):
    row = bank.tasks.index(task)
    return {panel.block_indices: panel.select_tasks([row]).tensors() for panel in bank.iter_panels()}


def same_bits(one, other):
    pairs = ((t, other[blocks][key]) for blocks, parts in one.items() for key, t in parts.items())
    return one.keys() == other.keys() and all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("storage", ["float32", "float16", "int8", "int4", "low-rank-4"])
def test_a_bank_grows_and_its_vectors_keep_their_bits(tmp_path, bank, newer, storage):
    path = tmp_path / "bank.safetensors"
    stored = bank.stored_as(storage)
    save_bank(stored, path)
    add_vector_to_file(newer, path)
    grown = load_bank(path)
    assert grown.tasks == (*bank.tasks, "dots")
    assert grown.storage == storage
    assert all(same_bits(bits(grown, task), bits(stored, task)) for task in bank.tasks)
    alone = TaskVectorBank.from_vectors([newer], storage=storage)
    assert same_bits(bits(grown, "dots"), bits(alone, "dots"))
    assert grown.infos[-1].digest == newer.digest()


def test_a_vector_takes_the_place_of_the_one_of_its_name(bank, newer):
    again = with_vector(bank, replace(newer, name="disks"))
    assert again.tasks == bank.tasks
    assert torch.equal(again.vectors_of("proj")[1], newer.blocks["proj"].flatten())
    assert torch.equal(again.vectors_of("proj")[2], bank.vectors_of("proj")[2])
    assert with_vector(TaskVectorBank.from_vectors([newer]), newer).tasks == ("dots",)


def test_a_new_file_is_made_in_the_storage_asked_for(tmp_path, newer):
    add_vector_to_file(newer, tmp_path / "new.safetensors", storage="bfloat16")
    assert load_bank(tmp_path / "new.safetensors").storage == "bfloat16"
    assert [path.name for path in tmp_path.iterdir()] == ["new.safetensors"]


def test_a_vector_of_another_base_is_refused_before_and_after_the_work(tmp_path, bank, newer, theta0):
    path = tmp_path / "bank.safetensors"
    save_bank(bank, path)
    before = path.read_bytes()
    table = block_table(theta0.items())
    check_bank_target(path, base=bank.base, blocks=table)
    with pytest.raises(BankError, match=r"bank\.safetensors holds vectors of another base model"):
        check_bank_target(path, base="0" * 64, blocks=table)
    with pytest.raises(BankError, match="different base"):
        add_vector_to_file(replace(newer, base="0" * 64), path)
    assert path.read_bytes() == before


def test_a_place_that_cannot_be_is_refused(tmp_path, theta0):
    table = block_table(theta0.items())
    for path in (tmp_path, tmp_path / "nowhere" / "bank.safetensors"):
        with pytest.raises(BankError, match="Give a file name in a folder that exists"):
            check_bank_target(path, base="", blocks=table)
    check_bank_target(tmp_path / "new.safetensors", base="", blocks=table)


def test_a_full_disk_leaves_the_old_bank(tmp_path, bank, newer):
    resource = pytest.importorskip("resource", reason="needs a limit on file size")
    path = tmp_path / "bank.safetensors"
    save_bank(bank, path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), hard))  # as on a full disk, half-way
    try:
        with pytest.raises(BankError, match="What was there before is unharmed"):
            add_vector_to_file(newer, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["bank.safetensors"]


def bank_of(*rows):
    return TaskVectorBank.from_vectors(
        [
            TaskVector(f"task{index}", {"proj": torch.tensor([row])}, "0" * 64)
            for index, row in enumerate(rows)
        ]
    )


def test_ties_averages_those_that_agree_with_the_larger_side():
    merged = merge_ties(bank_of([0.5, -1.0, 0.2], [0.3, 0.4, 0.0], [-0.6, 0.5, 0.4]), density=1.0)
    assert merged.blocks["proj"][0].tolist() == pytest.approx([0.4, -1.0, 0.3])


def test_ties_counts_only_the_largest_numbers_of_each_vector():
    merged = merge_ties(bank_of([4.0, 3.0, 2.0, 1.0], [0.1, 0.2, 0.3, 0.4]), density=0.5)
    assert merged.blocks["proj"][0].tolist() == pytest.approx([4.0, 3.0, 0.3, 0.4])


def test_ties_of_one_whole_vector_is_that_vector_over_several_blocks():
    blocks = {"a": torch.tensor([[1.0, -2.0]]), "b.bias": torch.tensor([0.5])}
    bank = TaskVectorBank.from_vectors([TaskVector("one", blocks, "0" * 64)])
    merged = merge_ties(bank, density=1.0)
    assert all(torch.equal(merged.blocks[name], value) for name, value in blocks.items())
    assert merged.info.dataset == "one"


def test_the_contributions_of_ties_add_up_to_the_merged_vector():
    bank = bank_of([0.5, -1.0, 0.2], [0.3, 0.4, 0.0], [-0.6, 0.5, 0.4])
    parts = ties_contributions(bank, density=1.0)
    assert [part.name for part in parts] == list(bank.tasks)
    assert [part.blocks["proj"][0, 0].item() for part in parts] == pytest.approx([0.25, 0.15, 0.0])
    assert torch.equal(
        (parts[0] + parts[1] + parts[2]).blocks["proj"], merge_ties(bank, density=1.0).blocks["proj"]
    )


@pytest.mark.parametrize("density", [0.0, 1.1])
def test_a_density_out_of_range_is_refused(density):
    with pytest.raises(BankError, match="density"):
        merge_ties(bank_of([1.0]), density=density)


def test_fidelity_of_a_bank_to_itself_is_perfect(bank):
    for found in fidelity(bank, bank).values():
        assert found.cosine == pytest.approx(1, abs=1e-12)
        assert found.relative_error < 1e-6


# ---- kinds of vectors


def as_kind(vector, kind):
    return replace(vector, info=replace(vector.info, kind=kind))


def test_linear_vectors_mix_with_no_others(tmp_path, bank, newer):
    path = tmp_path / "bank.safetensors"
    save_bank(bank, path)
    before = path.read_bytes()
    linear = as_kind(newer, "linear")
    refused = r"'dots' is a linear vector but '\w+' is a standard one, and the two do not mix"
    with pytest.raises(BankError, match=refused):
        check_kind_mixes(path, name="dots", kind="linear")
    with pytest.raises(BankError, match=refused):
        add_vector_to_file(linear, path)
    with pytest.raises(BankError, match=refused):
        join_banks([bank, TaskVectorBank.from_vectors([linear])])
    with pytest.raises(BankError, match=refused):
        TaskVectorBank.from_vectors([bank.vector(bank.tasks[0]), linear])
    with pytest.raises(BankError, match=refused):
        bank.vector(bank.tasks[0]) + linear
    assert path.read_bytes() == before


def test_a_bank_says_how_its_vectors_were_made_through_its_file(tmp_path, bank, newer):
    path = tmp_path / "bank.safetensors"
    for kind in VECTOR_KINDS:
        own = TaskVectorBank.from_vectors([as_kind(bank.vector(task), kind) for task in bank.tasks])
        save_bank(own, path)
        with BankFile(path) as file:
            assert file.kind == load_bank(path).kind == kind
        assert load_bank(path, tasks=bank.tasks[:1]).kind == kind
        assert merge_ties(own).info.kind == kind
    check_kind_mixes(path, name="dots", kind="linear")
    mixed = with_vector(bank, as_kind(newer, "lora"))
    assert mixed.kind == "standard", "both are added to the weights"


def test_a_file_without_kinds_is_a_standard_bank(tmp_path, bank):
    save_bank(bank, tmp_path / "bank.safetensors")
    file = TensorFile(tmp_path / "bank.safetensors", format_name="atlas-bank-1")
    assert all("kind" not in task for task in file.manifest["tasks"])
    file.close()
    assert load_bank(tmp_path / "bank.safetensors").kind == "standard"


def test_a_kind_that_nobody_knows_is_refused():
    with pytest.raises(BankError, match=r"kind of vector 'linaer' is not known\. Did you mean 'linear'"):
        VectorInfo(kind="linaer")
