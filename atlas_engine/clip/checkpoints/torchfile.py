"""What `torch.save` wrote, read without obeying it. Knows nothing of models.

A torch file is a pickle beside raw numbers. The pickle is read as data (`pickles`), so a file can hold a
state dict, a dict of them or a whole pickled module, of any class: what counts is which tensors it names.

    with TorchFile("finetuned.pt") as file:
        file.shapes["model.visual.proj"], file.read("model.visual.proj")

Both layouts are read: the zip of torch 1.6 and later, and the older one. A tensor's numbers are read when it
is asked for, and never more of them than the file holds.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from atlas_engine.clip.checkpoints.pickles import ForbiddenCallError, Named, Thing, read_pickle
from atlas_engine.errors import ModelError

__all__ = ["TorchFile"]

DTYPES = {
    "torch.FloatStorage": torch.float32,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.DoubleStorage": torch.float64,
    "torch.LongStorage": torch.int64,
    "torch.IntStorage": torch.int32,
    "torch.ShortStorage": torch.int16,
    "torch.CharStorage": torch.int8,
    "torch.ByteStorage": torch.uint8,
    "torch.BoolStorage": torch.bool,
}
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
MOST_PICKLE_NBYTES = 64 * 2**20
MOST_NODES = 200_000
MOST_DEPTH = 64
NONSENSE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What reading a damaged pickle ends in; a damaged zip ends in BadZipFile."""


@dataclass(frozen=True)
class Storage:
    """A run of numbers in the file, under its key."""

    key: str
    dtype: torch.dtype
    numel: int

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize


@dataclass(frozen=True)
class Record:
    """A tensor in the file: a view of a storage, checked to lie inside it and to be no larger than it."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def __post_init__(self) -> None:
        sizes = (self.offset, *self.shape, *self.stride)
        if len(self.shape) != len(self.stride) or not all(type(n) is int and n >= 0 for n in sizes):
            raise ValueError("a tensor has no proper shape")
        numel = math.prod(self.shape)
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))
        if numel and (numel > self.storage.numel or last >= self.storage.numel):
            raise ValueError("a tensor is larger than its data")


class TorchFile:
    """An open torch file: its tensors by name, read when asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] = path.open("rb")
        try:
            self._source: _Zip | _Legacy = (
                _Zip(self._file) if self._file.read(4) == b"PK\x03\x04" else _Legacy(self._file)
            )
            self._records = _tensors(self._source.root)
        except ForbiddenCallError as error:
            self.close()
            raise ModelError(
                f"{path.name} asks to call {error}, which weights do not need; none of it was run. Get the "
                "weights as safetensors, or from someone you trust."
            ) from error
        except (*NONSENSE, zipfile.BadZipFile) as error:
            self.close()
            raise self._damaged(error) from error

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape, by its path in the file: `state_dict.module.visual.proj`."""
        return {name: record.shape for name, record in self._records.items()}

    def read(self, name: str) -> Tensor:
        """One tensor, in memory of its own."""
        record = self._records[name]
        if not math.prod(record.shape):
            return torch.empty(record.shape, dtype=record.storage.dtype)
        try:
            data = self._source.data(record.storage)
            if len(data) < record.storage.nbytes:
                raise EOFError("it ends in the middle of the numbers")
        except (*NONSENSE, zipfile.BadZipFile) as error:
            raise self._damaged(error) from error
        flat = torch.frombuffer(data, dtype=record.storage.dtype, count=record.storage.numel)
        return flat.as_strided(record.shape, record.stride, record.offset).clone()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> TorchFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _damaged(self, error: Exception) -> ModelError:
        why = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        return ModelError(f"{self.path.name} is damaged or no torch file: {why}. Fetch or save it again.")


class _Zip:
    """The layout of today: `data.pkl` and one entry per storage, none of them compressed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(file)
        entries = self._zip.infolist()
        size = file.seek(0, 2)
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("its entries are compressed, which torch never does")
        if sum(entry.file_size for entry in entries) > size:
            raise ValueError("its entries are larger than the file")
        pickles = [entry for entry in entries if entry.filename.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError("it is a zip of something else")
        pickled = pickles[0]
        self._top = pickled.filename.removesuffix("data.pkl")
        if f"{self._top}constants.pkl" in self._zip.namelist():
            raise ValueError("it is a TorchScript program; save the state_dict() of the loaded module")
        if f"{self._top}byteorder" in self._zip.namelist() and self._read("byteorder") != b"little":
            raise ValueError("its numbers are big-endian")
        if pickled.file_size > MOST_PICKLE_NBYTES:
            raise ValueError("its pickle is too large")
        self.root = read_pickle(BytesIO(self._read("data.pkl")), builders=BUILDERS, persistent=_reference)

    def data(self, storage: Storage) -> bytearray:
        return bytearray(self._read(f"data/{storage.key}"))

    def _read(self, name: str) -> bytes:
        return self._zip.read(self._top + name)


class _Legacy:
    """The layout before torch 1.6: five pickles, then the storages one after the other."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        storages: dict[str, Storage] = {}

        def reference(told: object) -> object:
            found = _reference(told)
            if isinstance(found, Storage):
                storages[found.key] = found
            return found

        def read() -> object:
            return read_pickle(file, builders=BUILDERS, persistent=reference)

        file.seek(0)
        if read() != LEGACY_MAGIC:
            raise ValueError("it does not begin as one")
        read()  # the protocol
        facts = read()
        if not isinstance(facts, dict) or facts.get("little_endian") is not True:
            raise ValueError("its numbers are big-endian")
        self.root = read()
        self._at: dict[str, int] = {}
        keys = read()
        for key in keys if isinstance(keys, list) else ():
            storage = storages[key]
            if int.from_bytes(file.read(8), "little") != storage.numel:
                raise ValueError("its numbers are not where they should be")
            self._at[key] = file.tell()
            file.seek(storage.nbytes, 1)

    def data(self, storage: Storage) -> bytearray:
        self._file.seek(self._at[storage.key])
        return bytearray(self._file.read(storage.nbytes))


def _tensors(root: object) -> dict[str, Record]:
    """Every tensor below `root` by its path; of a module, the names that its `state_dict` would have."""
    found: dict[str, Record] = {}
    todo = [("", root, 0)]
    for count in range(MOST_NODES):
        if not todo:
            return found
        path, node, depth = todo.pop()
        if isinstance(node, Record):
            found[path] = node
        elif depth < MOST_DEPTH and count + len(todo) < MOST_NODES:
            todo += [(f"{path}.{key}" if path else key, child, depth + 1) for key, child in _children(node)]
    raise ValueError("it names too many things")


def _children(node: object) -> Iterator[tuple[str, object]]:
    if isinstance(node, dict):
        yield from ((key, child) for key, child in node.items() if isinstance(key, str))
    elif isinstance(node, (list, tuple)):
        yield from ((str(index), child) for index, child in enumerate(node))
    elif isinstance(node, Thing):
        for part in ("_parameters", "_buffers", "_modules"):  # where every nn.Module keeps its own
            held = node.state.get(part)
            yield from _children(held) if isinstance(held, dict) else ()


def _reference(told: object) -> object:
    """What a pickle's reference to the outside means: a storage or, in old files, a class and its source."""
    if not isinstance(told, tuple) or len(told) < 4:
        raise ValueError("it refers to something unknown")
    kind, named, key = told[:3]
    if kind == "module" and isinstance(named, Named):
        return named
    if kind != "storage" or not isinstance(named, Named) or not isinstance(key, str):
        raise ValueError("it refers to something unknown")
    if named.name not in DTYPES:
        raise ValueError(f"it holds numbers of kind {named.name}")
    numel = told[4]
    if type(numel) is not int or numel < 0 or (len(told) > 5 and told[5] is not None):
        raise ValueError("a storage has no proper size")
    return Storage(key, DTYPES[named.name], numel)


def _tensor(
    storage: object, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: object
) -> Record:
    if not isinstance(storage, Storage):
        raise ValueError("a tensor has no storage")
    return Record(storage, offset, tuple(shape), tuple(stride))


def _reconstructed(kind: object, *_: object) -> Thing:
    if not isinstance(kind, Named):
        raise ValueError("an object has no class")
    return Thing(kind.name)


def _dict(pairs: object = ()) -> dict[object, object]:
    if not isinstance(pairs, (list, tuple)):
        raise ValueError("an ordered dict is made from no list")
    return {key: value for key, value in pairs if isinstance(key, (str, int))}


BUILDERS: Mapping[str, Callable[..., object]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "torch._utils._rebuild_parameter_with_state": lambda data, *_: data,
    "torch.Size": lambda sizes=(): tuple(sizes),
    "collections.OrderedDict": _dict,
    "builtins.set": lambda items=(): list(items),
    "__builtin__.set": lambda items=(): list(items),
    "copyreg._reconstructor": _reconstructed,
    "copy_reg._reconstructor": _reconstructed,
}
"""The calls that a torch file needs, answered with data of ours: no tensor exists before it is checked."""
