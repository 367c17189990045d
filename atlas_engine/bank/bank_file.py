"""The bank file: a bank as one safetensors file with a manifest; how it is written, read and found.

    save_bank(bank, "bank.safetensors")
    bank = load_bank("bank.safetensors", device="cuda", tasks=["cars", "signs"])
    with BankFile("bank.safetensors") as file:       # reads the header only; a block is read when asked for
        file.tasks, file.storage
    find_bank(theta0)          # the file on this machine that was made for these weights, or None

Each tensor holds all tasks of one block, tasks first, under the block's name (`proj`); a storage that needs
more than one has `proj#scale`, `proj#q`, `proj#u`, `proj#v`. Every tensor is checked as it is read, and a
bank exists only after all of them are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import BlockTable, block_table
from atlas_engine.bank.budget import plan_memory
from atlas_engine.bank.packed import LowRankPanel, QuantPanel
from atlas_engine.bank.panels import DensePanel, Panel
from atlas_engine.bank.storage import bundle_small_blocks, find_storage
from atlas_engine.bank.tensor_file import TensorFile, write_tensors
from atlas_engine.bank.vector import STANDARD, VectorInfo, common_kind, fingerprint
from atlas_engine.class_names import is_legible
from atlas_engine.config import assets_folder, cache_folder
from atlas_engine.errors import BankError, unknown_name

__all__ = [
    "BankFile",
    "BankHeader",
    "banks_folder",
    "find_bank",
    "find_banks_for",
    "load_bank",
    "save_bank",
]

BANK_FORMAT = "atlas-bank-1"
MAX_NAME = 300  # characters of a block's or a task's name
MAX_TEXT = 10_000

Kind = TypeVar("Kind")


def save_bank(bank: TaskVectorBank, path: Path | str) -> None:
    """Write a bank to a file, which appears whole or not at all."""
    panels = {panel.block_indices[0]: panel for panel in bank.iter_panels()}
    tensors: dict[str, Tensor] = {}
    for m, block in enumerate(bank.blocks):
        for part, tensor in panels[m].tensors().items():
            if part == "data":
                tensors[block.name] = tensor.view(len(bank.tasks), *block.shape)
            else:
                tensors[f"{block.name}#{part}"] = tensor
    manifest = {
        "base": bank.base,
        "storage": bank.storage,
        "blocks": [[block.name, list(block.shape)] for block in bank.blocks],
        "tasks": [
            {"name": name, **_described(info)} for name, info in zip(bank.tasks, bank.infos, strict=True)
        ],
    }
    write_tensors(path, tensors, manifest=manifest, format_name=BANK_FORMAT)


def _described(info: VectorInfo) -> dict[str, Any]:
    """The info as the manifest holds it: a vector without a kind is a standard one."""
    facts = asdict(info)
    if info.kind == STANDARD:
        del facts["kind"]
    return facts


def load_bank(
    path: Path | str,
    *,
    device: torch.device | str = "cpu",
    tasks: Sequence[str] | None = None,
    budget_nbytes: int | None = None,
) -> TaskVectorBank:
    """The bank in a file, resident on `device`: all of it, only `tasks`, or what a memory budget allows."""
    with BankFile(path) as file:
        if budget_nbytes is None:
            return file.load(device, tasks=tasks)
        return file.fit(budget_nbytes, device=device, tasks=tasks)


class BankFile:
    """A bank on disk. Opening it reads the header; its numbers are read block by block."""

    tasks: tuple[str, ...]
    infos: tuple[VectorInfo, ...]
    blocks: BlockTable
    base: str
    storage: str
    kind: str

    def __init__(self, path: Path | str) -> None:
        self._file = TensorFile(path, format_name=BANK_FORMAT)
        try:
            self._read_manifest(self._file.manifest)
        except (KeyError, TypeError, ValueError) as error:
            self.close()
            what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise BankError(
                f"{Path(path).name} has a manifest that cannot be read: {what[:200]}. Make it again."
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors in the file."""
        return sum(entry.stop - entry.start for entry in self._file.entries.values())

    def load(
        self,
        device: torch.device | str = "cpu",
        *,
        tasks: Sequence[str] | None = None,
        shared: bool = False,
    ) -> TaskVectorBank:
        """The resident bank, of all tasks or of some. Raises before anything exists if a byte is wrong.

        With `shared`, all tasks on a CPU are views of the mapped file, which processes have in memory once.
        """
        panels: Sequence[Panel]
        if tasks is None and torch.device(device).type == "cpu":
            tensors = self._file.map_all() if shared else dict(self._file.read_all())
            panels = [self._require_finite(self._panel(m, tensors)) for m in range(len(self.blocks))]
        elif tasks is None:
            panels = [self._require_finite(panel).to(device) for panel in self.iter_panels()]
        else:
            rows = [self._position(task) for task in tasks]
            panels = [
                self._require_finite(panel.select_tasks(rows)).to(device) for panel in self.iter_panels()
            ]
        names = self.tasks if tasks is None else tuple(tasks)
        return TaskVectorBank(
            bundle_small_blocks(panels, self.blocks),
            tasks=names,
            blocks=self.blocks,
            base=self.base,
            infos=[self.infos[self._position(name)] for name in names],
            storage=self.storage,
        )

    def fit(
        self, budget_nbytes: int, *, device: torch.device | str = "cpu", tasks: Sequence[str] | None = None
    ) -> TaskVectorBank:
        """The bank within a memory budget, decided before a number is read. See `budget.plan_memory`."""
        names = self.tasks if tasks is None else tuple(tasks)
        infos = [self.infos[self._position(name)] for name in names]
        plan = plan_memory(
            self.blocks, tasks=names, infos=infos, storage=self.storage, budget_nbytes=budget_nbytes
        )
        loaded = self.load("cpu", tasks=None if plan.kept == self.tasks else plan.kept)
        return loaded.stored_as(plan.storage).to(device)

    def iter_panels(self) -> Iterator[Panel]:
        """One panel per block on the CPU, read when it is asked for: the bank is never in memory whole."""
        for m, block in enumerate(self.blocks):
            yield self._panel(m, {key: self._file.read(key) for key in self._keys[block.name]})

    @property
    def seal(self) -> str:
        """A hash of the header, which holds a checksum of every tensor: two files with one seal are equal."""
        return self._file.seal

    def keys_of(self, m: int) -> tuple[str, ...]:
        """The names of the tensors of block `m` in the file."""
        return self._keys[self.blocks[m].name]

    def vector_nbytes(self, m: int) -> int:
        """Bytes of one task's part of block `m`."""
        entries = [self._file.entries[key] for key in self.keys_of(m)]
        return sum(entry.stop - entry.start for entry in entries) // len(self.tasks)

    def read(self, key: str) -> Tensor:
        """One tensor of all tasks, checked against its checksum."""
        return self._file.read(key)

    def read_row(self, key: str, task: int) -> Tensor:
        """The part (1 …) of one tensor that belongs to one task; `index.BankIndex` can check it."""
        return self._file.read_row(key, task)

    def panel_from(self, m: int, tensors: Mapping[str, Tensor]) -> Panel:
        """The panel of block `m` from tensors by their names in the file, which may be of some tasks only."""
        return self._require_finite(self._panel(m, tensors))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> BankFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        size = f"{len(self.tasks)} tasks × {len(self.blocks)} blocks"
        return f"BankFile('{self._file.path.name}', {size}, {self.storage})"

    def _read_manifest(self, manifest: Mapping[str, Any]) -> None:
        self.base = _expect(manifest["base"], str, "base")
        self.storage = find_storage(_expect(manifest["storage"], str, "storage")).name
        rows = [_expect(row, list, "blocks") for row in _expect(manifest["blocks"], list, "blocks")]
        shapes = {_expect_name(name, "block"): _expect_sizes(sizes) for name, sizes in rows}
        self.blocks = block_table((name, torch.empty(sizes, device="meta")) for name, sizes in shapes.items())
        tasks = [_expect(task, dict, "tasks") for task in _expect(manifest["tasks"], list, "tasks")]
        self.tasks = tuple(_expect_name(task["name"], "task") for task in tasks)
        if len(set(self.tasks)) != len(tasks) or len(shapes) != len(rows):
            raise BankError(f"{self._file.path.name} names a block or a task twice. Make it again.")
        self.infos = tuple(map(_read_info, tasks))
        kinds = {task: info.kind for task, info in zip(self.tasks, self.infos, strict=True)}
        self.kind = common_kind(kinds)
        entries = self._file.entries
        self._keys = {block.name: _keys_of(block.name, entries) for block in self.blocks}
        has_every_block = all(self._keys.values())
        if not has_every_block or any(entry.shape[:1] != (len(self.tasks),) for entry in entries.values()):
            raise BankError(f"{self._file.path.name} does not hold what its manifest says. Make it again.")

    def _panel(self, m: int, tensors: Mapping[str, Tensor]) -> Panel:
        """The panel of block `m`, from tensors that may be of more blocks."""
        keys = self._keys[self.blocks[m].name]
        parts = {key.rpartition("#")[2] if "#" in key else "data": tensors[key] for key in keys}
        if "q" in parts:
            return QuantPanel((m,), parts["q"], parts["scale"], find_storage(self.storage).bits)
        if "u" in parts:
            return LowRankPanel((m,), parts["u"], parts["v"])
        return DensePanel((m,), parts["data"].view(len(parts["data"]), -1), parts.get("scale"))

    def _require_finite(self, panel: Panel) -> Panel:
        for tensor in panel.tensors().values():
            # a finite sum, which is quick to have, says that every number is finite
            sound = not tensor.is_floating_point() or bool(tensor.sum(dtype=torch.float32).isfinite())
            if not sound and not bool(tensor.isfinite().all()):
                block = self.blocks[panel.block_indices[0]].name
                raise BankError(
                    f"{self._file.path.name} holds NaN or infinity in '{block}'. Fetch or make it again."
                )
        return panel

    def _position(self, task: str) -> int:
        if task not in self.tasks:
            raise BankError(unknown_name("task", task, self.tasks))
        return self.tasks.index(task)


def _expect(value: Any, kind: type[Kind], what: str) -> Kind:  # noqa: ANN401 - anybody may have written it
    if type(value) is not kind:
        raise ValueError(f"its '{what}' is not {kind.__name__}")
    return value


def _expect_name(value: object, what: str) -> str:
    name = _expect(value, str, what)
    if not 0 < len(name) <= MAX_NAME or not is_legible(name):
        raise ValueError(f"the {what} name {name[:40]!r} is empty, too long or has unprintable characters")
    return name


def _expect_sizes(value: object) -> tuple[int, ...]:
    sizes = tuple(_expect(size, int, "blocks") for size in _expect(value, list, "blocks"))
    if len(sizes) > 8 or not all(0 < size < 2**31 for size in sizes):
        raise ValueError(f"a block has the shape {str(sizes)[:40]}")
    return sizes


def _read_info(task: Mapping[str, Any]) -> VectorInfo:
    """What the manifest says of a vector, checked field by field; a field that is not known is an error."""
    given = {name: value for name, value in task.items() if name != "name"}
    for name in ("dataset", "digest"):
        if not is_legible(_expect(given.get(name, ""), str, name)[:MAX_TEXT]):
            raise ValueError(f"its '{name}' has unprintable characters")
    for name in ("accuracy_before", "accuracy_after"):
        value = given.get(name)
        if value is not None and not (type(value) in (int, float) and 0 <= value <= 1):
            raise ValueError(f"its '{name}' is no number from 0 to 1")
    provenance = _expect(given.get("provenance", {}), dict, "provenance")
    if not all(type(text) is str and is_legible(text) for item in provenance.items() for text in item):
        raise ValueError("its 'provenance' holds other things than legible text")
    centroid = _expect(given["centroid"], list, "centroid")
    if not all(type(value) in (int, float) and math.isfinite(value) for value in centroid):
        raise ValueError("its 'centroid' holds other things than numbers")
    return VectorInfo(**{**given, "centroid": tuple(centroid)})


def _keys_of(block: str, entries: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a block's tensors in the file."""
    possible = (block, *(f"{block}#{part}" for part in ("q", "u", "v", "scale")))
    return tuple(key for key in possible if key in entries)


# ---- which bank belongs to a model


def banks_folder() -> Path:
    """Where a public bank is kept that was imported without naming a file."""
    return cache_folder() / "banks"


def find_bank(weights: Mapping[str, Tensor]) -> Path | None:
    """The bank that was made for these weights: one that ships, else one that was built.

    Reads headers only, and hashes the weights only if some bank has their blocks.
    """
    candidates = find_banks_for(block_table(weights.items()))
    base = fingerprint(weights) if candidates else ""
    return next((bank.path for bank in candidates if bank.base == base), None)


class BankHeader(NamedTuple):
    """What the header of a bank file says."""

    path: Path
    base: str
    tasks: tuple[str, ...]
    infos: tuple[VectorInfo, ...]


def find_banks_for(blocks: BlockTable) -> list[BankHeader]:
    """The headers of the bank files on this machine over these blocks."""
    found: list[BankHeader] = []
    for folder in (assets_folder() / "bank", banks_folder()):
        for path in sorted(folder.glob("*.safetensors")):
            try:
                with BankFile(path) as file:
                    if file.blocks == blocks:
                        found.append(BankHeader(path, file.base, tuple(file.tasks), tuple(file.infos)))
            except (BankError, OSError):  # a file that is no bank
                continue
    return found
