"""A shared bank is the mapped file: the same numbers, in memory once for all processes of a machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from atlas_engine.bank.bank_file import BankFile
from atlas_engine.config import assets_folder
from atlas_engine.errors import BankError

BUNDLED = next(iter(sorted((assets_folder() / "bank").glob("*.safetensors"))))


@pytest.fixture
def path(tmp_path):
    return Path(shutil.copy(BUNDLED, tmp_path / "bank.safetensors"))


def loaded(path, **how):
    with BankFile(path) as file:
        return file.load(**how)


def test_a_shared_bank_holds_the_same_numbers(path):
    own, shared = loaded(path), loaded(path, shared=True)
    assert own.fingerprint == shared.fingerprint
    for mine, theirs in zip(own.iter_panels(), shared.iter_panels(), strict=True):
        for key, tensor in mine.tensors().items():
            assert torch.equal(tensor, theirs.tensors()[key])


def test_a_shared_bank_outlives_its_file_being_replaced(path):
    shared, digest = loaded(path, shared=True), loaded(path).fingerprint
    other = path.with_name("other")
    other.write_bytes(b"no bank")
    other.replace(path)  # as a new bank is written: the old file lives on where it is mapped
    assert shared.fingerprint == digest
    first, again = (next(iter(shared.iter_panels())).tensors() for _ in range(2))
    assert all(torch.equal(tensor, again[key]) for key, tensor in first.items())


def test_a_write_to_a_shared_bank_does_not_reach_the_file(path):
    before = path.read_bytes()
    for tensor in next(iter(loaded(path, shared=True).iter_panels())).tensors().values():
        tensor.zero_()
    assert path.read_bytes() == before


def test_a_damaged_byte_of_a_shared_bank_is_found(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(BankError, match="checksum"):
        loaded(path, shared=True)
