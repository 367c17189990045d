"""The index of a bank file: a checksum of each vector's part of each tensor, to read vectors one by one.

The file itself has one checksum a tensor, which is of all vectors together. The index is made by reading the
file once, and kept in the cache folder under the file's seal; a changed file has another seal.

    index = open_index(file)                       # reads the kept index, or makes it
    index.check(key, task, file.read_row(key, task))

What chooses vectors, their feature centroids, is in the file's own header. So choosing 8 of 500 vectors reads
the header and the index; of the 500 vectors' numbers it reads those of a short list (`adapt.selection`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from atlas_engine.bank.bank_file import BankFile
from atlas_engine.bank.tensor_file import TensorFile, bytes_of, checksum, write_tensors
from atlas_engine.config import cache_folder
from atlas_engine.errors import BankError

__all__ = ["BankIndex", "build_index", "index_path", "open_index"]

INDEX_FORMAT = "atlas-bank-index-1"
SUM_NBYTES = 8  # of each checksum: enough against bad disks and broken downloads
_SUMS = "checksums"


@dataclass(frozen=True, eq=False)
class BankIndex:
    """Checksums (T tensors 8) as int8, and where each tensor's are."""

    sums: Tensor
    places: Mapping[str, int]

    @property
    def nbytes(self) -> int:
        """Bytes of the checksums."""
        return self.sums.numel()

    def check(self, key: str, task: int, row: Tensor) -> None:
        """Raise a BankError unless `row` is what the tensor `key` held of this task when it was indexed."""
        if not torch.equal(_sum_of(row), self.sums[task, self.places[key]]):
            raise BankError(
                f"vector {task} of '{key}' does not match its checksum: the bank file is damaged. "
                "Fetch or make it again."
            )


def open_index(file: BankFile) -> BankIndex:
    """The index that is kept of this file, or a new one, which is then kept."""
    path = index_path(file)
    if path.is_file():
        try:
            with TensorFile(path, format_name=INDEX_FORMAT) as kept:
                return BankIndex(kept.read(_SUMS), {key: i for i, key in enumerate(kept.manifest["keys"])})
        except (BankError, KeyError):  # damaged: made anew below
            pass
    index = build_index(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    manifest = {"seal": file.seal, "keys": list(index.places)}
    write_tensors(path, {_SUMS: index.sums}, manifest=manifest, format_name=INDEX_FORMAT)
    return index


def index_path(file: BankFile) -> Path:
    """Where the index of this file is kept."""
    return cache_folder() / "bank-index" / f"{file.seal[:32]}.safetensors"


def build_index(file: BankFile, *, on_block: Callable[[int], None] = lambda _: None) -> BankIndex:
    """The index, from one read of the file, block by block; each tensor is held to its own checksum first."""
    places = {key: i for i, key in enumerate(key for m in range(len(file.blocks)) for key in file.keys_of(m))}
    sums = torch.zeros(len(file.tasks), len(places), SUM_NBYTES, dtype=torch.int8)
    for m in range(len(file.blocks)):
        for key in file.keys_of(m):
            tensor = file.read(key)
            for task in range(len(file.tasks)):
                sums[task, places[key]] = _sum_of(tensor[task : task + 1])
        on_block(1)
    return BankIndex(sums, places)


def _sum_of(row: Tensor) -> Tensor:
    digest = bytes.fromhex(checksum(bytes_of(row)))[:SUM_NBYTES]
    return torch.frombuffer(bytearray(digest), dtype=torch.int8)
