"""Tensors in a file that `torch.save` wrote, read without running anything that the file holds.

A torch file is a pickle and raw numbers. The pickle is read as data (`pickles`), so the file can hold a state
dict, a dict of them, a whole pickled module of any class or a TorchScript archive, as OpenAI publishes CLIP:
every tensor in it is found by its path.

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

from atlas_engine.clip.checkpoints.pickles import ForbiddenCallError, GlobalName, ObjectRecord, read_pickle
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
TORCHSCRIPT = "__torch__."  # how the classes in a TorchScript archive are called
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
MAX_PICKLE_NBYTES = 64 * 2**20
MAX_NODES = 200_000
MAX_DEPTH = 64
DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
)
"""The errors that reading a damaged file can raise."""


@dataclass(frozen=True)
class TensorStorage:
    """A contiguous run of numbers in the file, under its key."""

    key: str
    dtype: torch.dtype
    numel: int

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize


@dataclass(frozen=True)
class TensorRecord:
    """A tensor in the file: a view of a storage, checked to lie inside it and to be no larger than it."""

    storage: TensorStorage
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
            is_zip = self._file.read(4) == b"PK\x03\x04"
            self._layout: _ZipLayout | _LegacyLayout = (
                _ZipLayout(self._file) if is_zip else _LegacyLayout(self._file)
            )
            self._records, self.class_names = _find_tensors(self._layout.root)
        except ForbiddenCallError as error:
            self.close()
            raise ModelError(
                f"{path.name} asks to call {error}, which weights do not need; none of it was run. Get the "
                "weights as safetensors, or from someone you trust."
            ) from error
        except DAMAGE as error:
            self.close()
            raise self._damaged(error) from error

    class_names: frozenset[str]  # of the pickled modules: empty if the file holds a state dict

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape, by its path in the file: `state_dict.module.visual.proj`."""
        return {name: record.shape for name, record in self._records.items()}

    def read(self, name: str) -> Tensor:
        """One tensor, in memory of its own."""
        record = self._records[name]
        storage = record.storage
        if not math.prod(record.shape):
            return torch.empty(record.shape, dtype=storage.dtype)
        try:
            data = self._layout.read_storage(storage)
            if len(data) < storage.nbytes:
                raise EOFError("it ends in the middle of the numbers")
        except DAMAGE as error:
            raise self._damaged(error) from error
        flat = torch.frombuffer(data, dtype=storage.dtype, count=storage.numel)
        return flat.as_strided(record.shape, record.stride, record.offset).clone()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> TorchFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _damaged(self, error: Exception) -> ModelError:
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        return ModelError(f"{self.path.name} is damaged or no torch file: {reason}. Fetch or save it again.")


class _ZipLayout:
    """The layout since torch 1.6: a zip of `data.pkl` and one entry per storage, none of them compressed.

    A TorchScript archive also has a folder `code` of compressed programs, which are never read.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(file)
        entries = self._zip.infolist()
        size = file.seek(0, 2)
        pickles = [entry for entry in entries if entry.filename.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError("it is a zip of something else")
        pickled = pickles[0]
        self._top = pickled.filename.removesuffix("data.pkl")
        data = [entry for entry in entries if not entry.filename.startswith(f"{self._top}code/")]
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in data):
            raise ValueError("its entries are compressed, which torch never does")
        if sum(entry.file_size for entry in data) > size:
            raise ValueError("its entries are larger than the file")
        if f"{self._top}byteorder" in self._zip.namelist() and self._read("byteorder") != b"little":
            raise ValueError("its numbers are big-endian")
        if pickled.file_size > MAX_PICKLE_NBYTES:
            raise ValueError("its pickle is too large")
        self.root = read_pickle(BytesIO(self._read("data.pkl")), builders=BUILDERS, resolve=_resolve)

    def read_storage(self, storage: TensorStorage) -> bytearray:
        return bytearray(self._read(f"data/{storage.key}"))

    def _read(self, name: str) -> bytes:
        return self._zip.read(self._top + name)


class _LegacyLayout:
    """The layout before torch 1.6: five pickles, then the storages one after the other."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        storages: dict[str, TensorStorage] = {}

        def resolve(reference: object) -> object:
            resolved = _resolve(reference)
            if isinstance(resolved, TensorStorage):
                storages[resolved.key] = resolved
            return resolved

        def read_next() -> object:
            return read_pickle(file, builders=BUILDERS, resolve=resolve)

        file.seek(0)
        if read_next() != LEGACY_MAGIC:
            raise ValueError("it does not begin as one")
        read_next()  # the protocol
        system = read_next()
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise ValueError("its numbers are big-endian")
        self.root = read_next()
        self._offsets: dict[str, int] = {}
        keys = read_next()
        for key in keys if isinstance(keys, list) else ():
            storage = storages[key]
            if int.from_bytes(file.read(8), "little") != storage.numel:
                raise ValueError("its numbers are not where they should be")
            self._offsets[key] = file.tell()
            file.seek(storage.nbytes, 1)

    def read_storage(self, storage: TensorStorage) -> bytearray:
        self._file.seek(self._offsets[storage.key])
        return bytearray(self._file.read(storage.nbytes))


def _find_tensors(root: object) -> tuple[dict[str, TensorRecord], frozenset[str]]:
    """Every tensor below `root` by its path, and the names of the classes of all modules there.

    In a module, a tensor's path is its name in the module's `state_dict`.
    """
    found: dict[str, TensorRecord] = {}
    class_names: set[str] = set()
    todo = [("", root, 0)]
    for count in range(MAX_NODES):
        if not todo:
            return found, frozenset(class_names)
        path, node, depth = todo.pop()
        if isinstance(node, ObjectRecord):
            class_names.add(node.name)
        if isinstance(node, TensorRecord):
            found[path] = node
        elif depth < MAX_DEPTH and count + len(todo) < MAX_NODES:
            todo += [(f"{path}.{key}" if path else key, child, depth + 1) for key, child in _children(node)]
    raise ValueError("it names too many things")


def _children(node: object) -> Iterator[tuple[str, object]]:
    if isinstance(node, dict):
        yield from ((key, child) for key, child in node.items() if isinstance(key, str))
    elif isinstance(node, (list, tuple)):
        yield from ((str(index), child) for index, child in enumerate(node))
    elif isinstance(node, ObjectRecord) and node.name.startswith(TORCHSCRIPT):
        yield from _children(node.state)  # all of a module's tensors and modules stand side by side
    elif isinstance(node, ObjectRecord):
        for part in ("_parameters", "_buffers", "_modules"):  # of every nn.Module
            members = node.state.get(part)
            yield from _children(members) if isinstance(members, dict) else ()


def _resolve(reference: object) -> object:
    """The storage that a persistent id stands for; or, in old files, the class that comes with its source."""
    if not isinstance(reference, tuple) or len(reference) < 4:
        raise ValueError("it refers to something unknown")
    kind, named, key = reference[:3]
    if kind == "module" and isinstance(named, GlobalName):
        return named
    if kind != "storage" or not isinstance(named, GlobalName) or not isinstance(key, str):
        raise ValueError("it refers to something unknown")
    if named.name not in DTYPES:
        raise ValueError(f"it holds numbers of kind {named.name}")
    numel = reference[4]
    if type(numel) is not int or numel < 0 or (len(reference) > 5 and reference[5] is not None):
        raise ValueError("a storage has no proper size")
    return TensorStorage(key, DTYPES[named.name], numel)


def _tensor(
    storage: object, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], *_: object
) -> TensorRecord:
    if not isinstance(storage, TensorStorage):
        raise ValueError("a tensor has no storage")
    return TensorRecord(storage, offset, tuple(shape), tuple(stride))


def _object(kind: object, *_: object) -> ObjectRecord:
    if not isinstance(kind, GlobalName):
        raise ValueError("an object has no class")
    return ObjectRecord(kind.name)


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
    **{f"torch.jit._pickle.build_{kind}list": list for kind in ("int", "double", "bool", "tensor")},
    "copyreg._reconstructor": _object,
    "copy_reg._reconstructor": _object,
}
"""The calls that a torch file needs, answered with records: no tensor exists before its sizes are checked."""
