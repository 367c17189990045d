"""A safetensors file with a checksum for every tensor, written whole and read front to back.

The container below a bank file and below the state of a training. Any safetensors reader opens it. Its
metadata has three entries: `format`, `manifest` (the caller's JSON, with `checksums` added) and `seal`, the
hash of the manifest and the table of tensors together.

    write_tensors("bank.safetensors", tensors, manifest={...}, format_name="atlas-bank-1")
    with TensorFile("bank.safetensors", format_name="atlas-bank-1") as file:     # reads the header only
        file.manifest, file.read("proj")

safetensors' own reader was tried in place of this one. Copying each tensor out of its memory map takes longer
than reading; without the copy a bank would change, or crash the process, when its file is overwritten. Where
many processes of one machine hold one bank, the copies cost more than that: `map_all` gives the mapped file.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from atlas_engine.errors import BankError
from atlas_engine.files import atomic_write

__all__ = ["TensorFile", "bytes_of", "checksum", "write_tensors"]

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I8": torch.int8}
_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

_MAX_HEADER_NBYTES = 100 * 2**20
_PAGE_NBYTES = 4096
_HASHED_WHOLE_NBYTES = 2**16  # up to this size a tensor is hashed byte by byte


@dataclass(frozen=True)
class TensorEntry:
    """Dtype, shape and place of a tensor: its bytes `start` to `stop` of the file's data."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


def write_tensors(
    path: Path | str, tensors: Mapping[str, Tensor], *, manifest: Mapping[str, Any], format_name: str
) -> None:
    """Write tensors and manifest to a file that appears whole or not at all."""
    # wide dtypes first, so that each tensor is aligned
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].element_size()))
    table: dict[str, Any] = {}
    at = 0
    for key, tensor in tensors.items():
        nbytes = tensor.numel() * tensor.element_size()
        table[key] = {
            "dtype": _DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, at + nbytes],
        }
        at += nbytes
    sums = {key: checksum(bytes_of(tensor)) for key, tensor in tensors.items()}
    text = json.dumps({**manifest, "checksums": sums}, ensure_ascii=False, sort_keys=True)
    metadata = {"format": format_name, "manifest": text, "seal": _seal(text, table)}
    header = json.dumps({"__metadata__": metadata, **table}, ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)
    try:
        with atomic_write(path) as part, part.open("wb") as file:
            file.write(len(header).to_bytes(8, "little"))
            file.write(header)
            for tensor in tensors.values():
                file.write(bytes_of(tensor).numpy().data)
    except OSError as error:
        raise BankError(
            f"cannot write {Path(path).name}: {error.strerror or error}. What was there before is unharmed. "
            "Free some space or choose another folder."
        ) from error


class TensorFile:
    """An open file. Opening it reads and checks the header; a tensor is read when it is asked for."""

    def __init__(self, path: Path | str, *, format_name: str) -> None:
        self.path = Path(path)
        try:
            self._file = FileIO(self.path, "rb")
        except OSError as error:
            raise BankError(f"cannot open {self.path}: {error.strerror}. Check the path.") from error
        try:
            self.manifest, self.entries = self._read_header(format_name)
        except BaseException:
            self._file.close()
            raise
        self._checksums: Mapping[str, str] = self.manifest["checksums"]
        self._one_reader = threading.Lock()  # a file has one position

    def read(self, key: str) -> Tensor:
        """One tensor on the CPU, checked against its checksum."""
        entry = self.entries[key]
        tensor = self._read(key, torch.empty(entry.stop - entry.start, dtype=torch.uint8))
        self._check(key, tensor)
        return tensor

    def read_row(self, key: str, row: int) -> Tensor:
        """One row of a tensor, (1 …) on the CPU. A tensor's checksum is of all rows, so it is not checked."""
        entry = self.entries[key]
        nbytes = (entry.stop - entry.start) // entry.shape[0]
        memory = torch.empty(nbytes, dtype=torch.uint8)
        self._read_into(memory, entry.start + row * nbytes)
        return memory.view(entry.dtype).view(1, *entry.shape[1:])

    def read_all(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor in the file's order, all in one allocation.

        A second thread checks each tensor while the next is read; a failed check raises at the end of the
        iteration. Use no tensor before the end.
        """
        memory = torch.empty(max((e.stop for e in self.entries.values()), default=0), dtype=torch.uint8)
        checks: list[Future[None]] = []
        with ThreadPoolExecutor(1) as checker:
            for key, entry in self.entries.items():
                tensor = self._read(key, memory[entry.start : entry.stop])
                checks.append(checker.submit(self._check, key, tensor))
                yield key, tensor
            for check in checks:
                check.result()

    def map_all(self) -> dict[str, Tensor]:
        """Every tensor, as a view of the mapped file: processes that map one file share its memory.

        Each is checked. Replace such a file by another (as `write_tensors` does), and never write into it.
        """
        # a private mapping: a write would go to a copy of the page, not to the file
        nbytes = self.path.stat().st_size
        memory = torch.from_file(str(self.path), shared=False, size=nbytes, dtype=torch.uint8)
        tensors = {}
        for key, entry in self.entries.items():
            data = memory[self._data_start + entry.start : self._data_start + entry.stop]
            aligned = data if data.data_ptr() % entry.dtype.itemsize == 0 else data.clone()
            tensors[key] = aligned.view(entry.dtype).view(entry.shape)
            self._check(key, tensors[key])
        return tensors

    def close(self) -> None:
        """Close the file; tensors already read stay."""
        self._file.close()

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, key: str, memory: Tensor) -> Tensor:
        """The tensor `key` in `memory` (uint8), not yet checked."""
        entry = self.entries[key]
        self._read_into(memory, entry.start)
        return memory.view(entry.dtype).view(entry.shape)

    def _read_into(self, memory: Tensor, start: int) -> None:
        """Fill `memory` (uint8) with the bytes of the file's data from `start`."""
        view = memory.numpy().data
        with self._one_reader:
            self._file.seek(self._data_start + start)
            done = 0
            while done < len(view):
                count = self._file.readinto(view[done:])
                if not count:
                    raise self._damaged("it ends in the middle of the data")
                done += count

    def _check(self, key: str, tensor: Tensor) -> None:
        if checksum(bytes_of(tensor)) != self._checksums.get(key):
            raise self._damaged(f"'{key}' does not match its checksum")

    def _read_header(self, format_name: str) -> tuple[dict[str, Any], dict[str, TensorEntry]]:
        """The manifest and the table of tensors, after every check that needs no tensor."""
        size = self.path.stat().st_size
        length = int.from_bytes(self._file.read(8) or b"", "little")
        if not 2 <= length <= min(_MAX_HEADER_NBYTES, size - 8):
            raise self._foreign()
        self._data_start = 8 + length
        try:
            table = json.loads(self._file.read(length) or b"")
            metadata = table.pop("__metadata__")
            text = metadata["manifest"]
            manifest = json.loads(text)
            self.seal = str(metadata.get("seal"))
            checksums = dict(manifest["checksums"])
            entries = {key: _entry(value) for key, value in table.items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise self._foreign() from error
        if metadata.get("format") != format_name:
            raise self._foreign()
        if self.seal != _seal(text, table) or set(checksums) != set(entries):
            raise self._damaged("its manifest was altered")
        if not _is_contiguous(entries):
            raise self._damaged("its tensors overlap or leave gaps")
        needed = self._data_start + max((entry.stop for entry in entries.values()), default=0)
        if size != needed:
            raise self._damaged(f"it has {size} bytes where {needed} are needed")
        return manifest, entries

    def _foreign(self) -> BankError:
        return BankError(
            f"{self.path.name} is not a bank file. Make one with `atlas bank train` or `import`."
        )

    def _damaged(self, why: str) -> BankError:
        return BankError(f"{self.path.name} is damaged: {why}. Fetch or make it again.")


def checksum(data: Tensor) -> str:
    """A hash of bytes (uint8) that costs one read of memory.

    Large data is summed page by page, 4 KiB as 512 words of 64 bits (wrapping), and the sums are hashed in
    order with sha256: a flipped bit, a lost or a swapped page shows, as bad disks and broken downloads make
    them. It is no signature: whoever can write the file can write the checksum too.
    """
    digest = hashlib.sha256(str(len(data)).encode())
    paged = len(data) // _PAGE_NBYTES * _PAGE_NBYTES if len(data) > _HASHED_WHOLE_NBYTES else 0
    if paged:
        pages = data[:paged] if data.data_ptr() % 8 == 0 else data[:paged].clone()
        digest.update(pages.view(torch.int64).view(-1, _PAGE_NBYTES // 8).sum(1).numpy().data)
    digest.update(data[paged:].numpy().data)
    return digest.hexdigest()[:32]


def bytes_of(tensor: Tensor) -> Tensor:
    """The bytes of a tensor in order, as uint8 on the CPU."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)  # a tensor of one number may have any stride


def _seal(manifest: str, table: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{manifest}\n{json.dumps(table, sort_keys=True)}".encode()).hexdigest()


def _entry(value: Mapping[str, Any]) -> TensorEntry:
    start, stop = value["data_offsets"]
    entry = TensorEntry(DTYPES[value["dtype"]], tuple(int(n) for n in value["shape"]), int(start), int(stop))
    if min((*entry.shape, start), default=0) < 0:
        raise ValueError("negative size")
    if stop - start != math.prod(entry.shape) * entry.dtype.itemsize:
        raise ValueError("size and shape differ")
    return entry


def _is_contiguous(entries: Mapping[str, TensorEntry]) -> bool:
    """Whether the tensors follow each other without overlaps or gaps."""
    at = 0
    for entry in sorted(entries.values(), key=lambda entry: entry.start):
        if entry.start != at:
            return False
        at = entry.stop
    return True
