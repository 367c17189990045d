"""The bank file: a bank as one safetensors file with a manifest. Knows nothing of models or coefficients.

    save_bank(bank, "bank.safetensors")
    bank = load_bank("bank.safetensors", device="cuda", tasks=["cars", "signs"])
    with BankFile("bank.safetensors") as file:       # the manifest only; a block is read when it is asked for
        file.tasks, file.storage, file.parts()

Each tensor holds all tasks of one block, tasks first, under the block's name (`proj`); a storage that needs
more than one has `proj#scale`, `proj#q`, `proj#u`, `proj#v`. Every tensor is checked on the way in, and a
bank exists only after all of them are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import Block, BlockTable, block_table
from atlas_engine.bank.budget import plan_memory
from atlas_engine.bank.packed import LowRankPanel, QuantPanel
from atlas_engine.bank.panels import DensePanel, Panel, Rows
from atlas_engine.bank.storage import SMALL, bundle_small_blocks, storage_named
from atlas_engine.bank.tensor_file import TensorFile, write_tensors
from atlas_engine.bank.vector import VectorInfo, fingerprint
from atlas_engine.config import assets_folder, cache_folder
from atlas_engine.errors import BankError, unknown_name

__all__ = [
    "BankCheck",
    "BankFile",
    "banks_folder",
    "check_bank",
    "find_bank",
    "load_bank",
    "save_bank",
    "vector_norms",
]

BANK_FORMAT = "atlas-bank-1"


def save_bank(bank: TaskVectorBank, path: Path | str) -> None:
    """Write a bank to a file, which appears whole or not at all."""
    panels = {panel.units[0]: panel for panel in bank.parts()}
    tensors: dict[str, Tensor] = {}
    for m, block in enumerate(bank.blocks):
        for part, tensor in panels[m].tensors().items():
            key = block.name if part == "data" else f"{block.name}#{part}"
            tensors[key] = tensor.view(len(bank.tasks), *block.shape) if part == "data" else tensor
    manifest = {
        "base": bank.base,
        "storage": bank.storage,
        "blocks": [[block.name, list(block.shape)] for block in bank.blocks],
        "tasks": [{"name": name, **asdict(info)} for name, info in zip(bank.tasks, bank.infos, strict=True)],
    }
    write_tensors(path, tensors, manifest=manifest, format_name=BANK_FORMAT)


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
    """A bank still on disk: what it holds is known, its numbers are read block by block."""

    def __init__(self, path: Path | str) -> None:
        self._file = TensorFile(path, format_name=BANK_FORMAT)
        try:
            self._take(self._file.manifest)
        except (KeyError, TypeError, ValueError) as error:
            self.close()
            raise BankError(f"{Path(path).name} has a manifest that cannot be read: {error!r}.") from error
        except BankError:
            self.close()
            raise

    tasks: tuple[str, ...]
    infos: tuple[VectorInfo, ...]
    blocks: BlockTable
    base: str
    storage: str

    def _take(self, manifest: Mapping[str, Any]) -> None:
        self.base, self.storage = str(manifest["base"]), storage_named(manifest["storage"]).name
        shapes = [(str(name), torch.empty(shape, device="meta")) for name, shape in manifest["blocks"]]
        self.blocks = block_table(shapes)
        entries = [dict(entry) for entry in manifest["tasks"]]
        self.tasks = tuple(str(entry.pop("name")) for entry in entries)
        self.infos = tuple(VectorInfo(**{**e, "centroid": tuple(e["centroid"])}) for e in entries)
        self._keys = {block.name: _keys(block.name, self._file.entries) for block in self.blocks}
        wrong = [name for name, keys in self._keys.items() if not keys]
        if wrong or any(entry.shape[:1] != (len(self.tasks),) for entry in self._file.entries.values()):
            raise BankError(f"{self._file.path.name} does not hold what its manifest says. Make it again.")

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors in the file."""
        return sum(entry.stop - entry.start for entry in self._file.entries.values())

    def load(
        self, device: torch.device | str = "cpu", *, tasks: Sequence[str] | None = None
    ) -> TaskVectorBank:
        """The resident bank, of all tasks or of some. Raises before anything exists if a byte is wrong."""
        kept = range(len(self.tasks)) if tasks is None else [self._position(task) for task in tasks]
        if tasks is None and torch.device(device).type == "cpu":
            tensors = dict(self._file.read_all())
            parts = [self._panel(m, {k: tensors[k] for k in keys}) for m, keys in self._numbered()]
        else:
            parts = [self._moved(panel, kept, device) for panel in self.parts()]
        return TaskVectorBank(
            bundle_small_blocks(_small(part, self.blocks) for part in parts),
            tasks=[self.tasks[t] for t in kept],
            blocks=self.blocks,
            base=self.base,
            infos=[self.infos[t] for t in kept],
            storage=self.storage,
        )

    def fit(
        self, budget_nbytes: int, *, device: torch.device | str = "cpu", tasks: Sequence[str] | None = None
    ) -> TaskVectorBank:
        """The bank within a memory budget, decided before a number is read. See `budget.plan_memory`."""
        names = self.tasks if tasks is None else tuple(tasks)
        infos = [self.infos[self._position(name)] for name in names]
        made = plan_memory(
            self.blocks, tasks=names, infos=infos, storage=self.storage, budget_nbytes=budget_nbytes
        )
        loaded = self.load("cpu", tasks=None if made.kept == self.tasks else made.kept)
        return loaded.stored_as(made.storage).to(device)

    def parts(self) -> Iterator[Panel]:
        """One panel per block on the CPU, read when it is asked for: the bank is never in memory whole."""
        for m, keys in self._numbered():
            yield self._panel(m, {key: self._file.read(key) for key in keys})

    def close(self) -> None:
        """Let go of the file."""
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

    def _numbered(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        return ((m, self._keys[block.name]) for m, block in enumerate(self.blocks))

    def _panel(self, m: int, tensors: Mapping[str, Tensor]) -> Panel:
        parts = {key.rpartition("#")[2] if "#" in key else "data": tensor for key, tensor in tensors.items()}
        if "q" in parts:
            return QuantPanel((m,), parts["q"], parts["scale"], storage_named(self.storage).bits)
        if "u" in parts:
            return LowRankPanel((m,), parts["u"], parts["v"])
        return DensePanel((m,), parts["data"].view(len(self.tasks), -1), parts.get("scale"))

    def _moved(self, panel: Panel, rows: Sequence[int], device: torch.device | str) -> Panel:
        taken = panel if len(rows) == len(self.tasks) else panel.taken(rows)
        return taken.rebuilt({key: tensor.to(device) for key, tensor in taken.tensors().items()})

    def _position(self, task: str) -> int:
        if task not in self.tasks:
            raise BankError(unknown_name("task", task, self.tasks))
        return self.tasks.index(task)


def _keys(block: str, entries: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        k for k in (block, *(f"{block}#{part}" for part in ("q", "u", "v", "scale"))) if k in entries
    )


def _small(panel: Panel, blocks: BlockTable) -> Panel | Rows:
    if isinstance(panel, DensePanel) and blocks[panel.units[0]].numel < SMALL:
        return Rows(panel.units[0], panel.data, panel.scale)
    return panel


# ---- A bank file looked at without loading it: its vectors' lengths, and whether it is sound.
OnBlock = Callable[[int], None]


@dataclass(frozen=True)
class BankCheck:
    """One thing looked at, whether it is as it should be, and what was found."""

    name: str
    good: bool
    detail: str


def vector_norms(file: BankFile, *, on_block: OnBlock = lambda _: None) -> tuple[float, ...]:
    """‖τ‖ of every vector, block by block; `on_block` is told of each."""
    total = torch.zeros(len(file.tasks), dtype=torch.float64)
    for _, squares in _squares(file):
        total += squares
        on_block(1)
    return tuple(math.sqrt(value) for value in total.tolist())


def check_bank(
    path: Path | str, *, base: Mapping[str, Tensor] | None = None, on_block: OnBlock = lambda _: None
) -> list[BankCheck]:
    """What holds of a bank file: header, checksums, finite numbers and, where one is given, its base."""
    try:
        file = BankFile(path)
    except BankError as error:
        return [BankCheck("file", False, str(error))]
    with file:
        held = BankCheck(
            "file", True, f"{len(file.tasks)} vectors × {len(file.blocks)} blocks, {file.storage}"
        )
        checks = [held, *_check_numbers(file, on_block)]
        return checks if base is None else [*checks, _check_base(file, base)]


def _check_numbers(file: BankFile, on_block: OnBlock) -> list[BankCheck]:
    wild: list[str] = []
    try:
        for block, squares in _squares(file):
            good = torch.isfinite(squares).tolist()
            wild += [f"{file.tasks[t]}: {block.name}" for t, fine in enumerate(good) if not fine]
            on_block(1)
    except BankError as error:
        return [BankCheck("checksums", False, str(error))]
    found = f"NaN or infinity in {len(wild)}, the first {wild[0]}" if wild else "all finite"
    return [
        BankCheck("checksums", True, "every tensor matches its own"),
        BankCheck("numbers", not wild, found),
    ]


def _check_base(file: BankFile, base: Mapping[str, Tensor]) -> BankCheck:
    if file.blocks != block_table(base.items()):
        return BankCheck(
            "base", False, "the model has other blocks. Give the one that the bank was made for."
        )
    found = fingerprint(base)
    if found != file.base:
        detail = f"made for {file.base[:12]}, but the model is {found[:12]}. Give the one it was made for."
        return BankCheck("base", False, detail)
    return BankCheck("base", True, f"the model's own, {found[:12]}")


def _squares(file: BankFile) -> Iterator[tuple[Block, Tensor]]:
    """Σ τ² of each block for every task, (T) in float64; not finite where τ is not."""
    for panel in file.parts():
        total = torch.zeros(len(file.tasks), dtype=torch.float64)
        for _, _, tau in panel.pieces(torch.float32):
            total += tau.double().square().sum(1)
        yield file.blocks[panel.units[0]], total


# ---- Which bank file on this machine is a model's own. Knows nothing of models.
# find_bank(dict(backbone.visual.named_parameters())) # a path, or None Which one it is, is decided by the
# bank itself, which names the weights that it was taken from.
def banks_folder() -> Path:
    """Where a public bank is kept that was imported without naming a file."""
    return cache_folder() / "banks"


def find_bank(weights: Mapping[str, Tensor]) -> Path | None:
    """The bank that was made for these weights: one that ships, else one that was built."""
    base = fingerprint(weights)
    for folder in (assets_folder() / "bank", banks_folder()):
        for path in sorted(folder.glob("*.safetensors")):
            if _base_of(path) == base:
                return path
    return None


def _base_of(path: Path) -> str | None:
    """Which weights a bank file belongs to; None for a file that is no bank."""
    try:
        with BankFile(path) as file:
            return file.base
    except (BankError, OSError):
        return None
