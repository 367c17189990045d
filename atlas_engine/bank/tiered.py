"""A bank that stays on disk: its vectors are read when a run has chosen them, to memory and to the device.

    bank = TieredBank.open("bank.safetensors", device="cuda", memory_nbytes=2**30)
    bank.select(["cars", "signs"]), bank.select_blocks(names)     # views: nothing is read
    bank.extract(["cars", "signs"])                               # read, and resident on the device
    bank.panels                                                   # the whole bank, read as a resident one is

It is used like any bank. A run with a budget reads a short list of vectors, and a recipe the few that it
draws on; whatever needs all vectors, such as a run without a budget, loads all.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from typing_extensions import override

from atlas_engine.bank.bank import TaskVectorBank, at_block
from atlas_engine.bank.bank_file import load_bank
from atlas_engine.bank.blocks import Block, BlockTable
from atlas_engine.bank.panels import Panel
from atlas_engine.bank.residency import Residency, Tier, VectorPlace
from atlas_engine.bank.storage import bundle_small_blocks
from atlas_engine.bank.tiers import VectorTiers
from atlas_engine.bank.vector import TaskVector
from atlas_engine.errors import BankError

__all__ = ["TieredBank"]


class _Shared:
    """What all views of one file have in common: the tiers, the device, and what is there."""

    def __init__(self, tiers: VectorTiers, device: torch.device, load: Callable[[], TaskVectorBank]) -> None:
        self.tiers, self.device, self._load = tiers, device, load
        self.on_device: weakref.WeakKeyDictionary[TaskVectorBank, frozenset[str]] = (
            weakref.WeakKeyDictionary()
        )

    @functools.cached_property
    def whole(self) -> TaskVectorBank:
        """The bank loaded whole, on first use."""
        bank = self._load()
        self.on_device[bank] = frozenset(bank.tasks)
        return bank


class TieredBank(TaskVectorBank):
    """A view of a bank file: the tasks at some of its rows, over some of its blocks."""

    def __init__(self, shared: _Shared, *, rows: Sequence[int], block_indices: Sequence[int]) -> None:
        file = shared.tiers.file
        super().__init__(
            (),
            tasks=[file.tasks[row] for row in rows],
            blocks=BlockTable(file.blocks[m] for m in block_indices),
            base=file.base,
            infos=[file.infos[row] for row in rows],
            storage=file.storage,
        )
        self._shared, self._file_rows, self._file_blocks = shared, tuple(rows), tuple(block_indices)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        device: torch.device | str = "cpu",
        memory_nbytes: int,
        load: Callable[[], TaskVectorBank] | None = None,
    ) -> TieredBank:
        """The bank of a file, of which the header and the index are read; the index is made where it is not.

        `memory_nbytes` limits what is kept of the vectors that were read. `load` loads the whole bank where
        it is needed, by default as `load_bank` does.
        """
        tiers = VectorTiers(path, memory_nbytes=memory_nbytes)
        at = torch.device(device)
        shared = _Shared(tiers, at, load or functools.partial(load_bank, path, device=at))
        return cls(shared, rows=range(len(tiers.file.tasks)), block_indices=range(len(tiers.file.blocks)))

    @property
    def tiers(self) -> VectorTiers:
        """Disk and memory."""
        return self._shared.tiers

    @property
    @override
    def panels(self) -> tuple[Panel, ...]:
        return self._resident.panels

    @property
    @override
    def device(self) -> torch.device:
        return self._shared.device

    @property
    @override
    def nbytes(self) -> int:
        return sum(bank.nbytes for bank in self._shared.on_device)

    @override
    def select(self, names: Iterable[str]) -> TaskVectorBank:
        positions = [self._position(name) for name in ([names] if isinstance(names, str) else names)]
        if not positions:
            raise BankError(f"no task was selected. Pick from: {', '.join(self.tasks)}.")
        rows = [self._file_rows[t] for t in positions]
        return TieredBank(self._shared, rows=rows, block_indices=self._file_blocks)

    @override
    def extract(self, names: Iterable[str]) -> TaskVectorBank:
        chosen = self.select(names)
        bank = TaskVectorBank(
            bundle_small_blocks((panel.to(self.device) for panel in chosen.iter_panels()), self.blocks),
            tasks=chosen.tasks,
            blocks=self.blocks,
            base=self.base,
            infos=chosen.infos,
            storage=self.storage,
        )
        self.hold(bank, chosen.tasks)
        return bank

    @override
    def select_blocks(self, names: Iterable[str]) -> TaskVectorBank:
        kept = sorted({self.blocks.index(name) for name in ([names] if isinstance(names, str) else names)})
        if not kept:
            raise BankError("no block was named. Pass the names of some of the bank's blocks.")
        blocks = [self._file_blocks[m] for m in kept]
        return TieredBank(self._shared, rows=self._file_rows, block_indices=blocks)

    @override
    def to(self, device: torch.device | str) -> TaskVectorBank:
        return self if torch.device(device) == self.device else self._resident.to(device)

    @override
    def stored_as(self, storage: str) -> TaskVectorBank:
        return self if storage == self.storage else super().stored_as(storage)

    @override
    def iter_panels(self) -> Iterator[Panel]:
        for m in range(len(self.blocks)):
            yield self.block_panel(m, range(len(self)))

    @override
    def block_panel(self, m: int, positions: Sequence[int]) -> Panel:
        rows = [self._file_rows[t] for t in positions]
        return at_block(self.tiers.panel(self._file_blocks[m], rows), m)

    @override
    def vectors_of(self, block: str | Block) -> Tensor:
        panel = self.block_panel(self.blocks.index(block), range(len(self)))
        return panel.decode(0, panel.numel).to(self.device)

    @override
    def vector(self, name: str) -> TaskVector:
        return self.extract([name]).vector(name)

    @override
    def prefetch(self, names: Sequence[str]) -> None:
        self.tiers.prefetch([self._file_rows[self._position(name)] for name in names], self._file_blocks)

    @override
    def rate(self, scores: Mapping[str, float]) -> None:
        self.tiers.rate({self._file_rows[self._position(name)]: score for name, score in scores.items()})

    @override
    def hold(self, used: TaskVectorBank, names: Iterable[str]) -> None:
        self._shared.on_device[used] = frozenset(names)

    @override
    def residency(self) -> Residency:
        shared, tiers = self._shared, self.tiers
        near = frozenset[str]().union(*shared.on_device.values())
        return Residency(
            tuple(
                self._place(task, row, near) for task, row in zip(self.tasks, self._file_rows, strict=True)
            ),
            device=str(self.device),
            device_nbytes=self.nbytes,
            memory_nbytes=tiers.memory_nbytes,
            memory_limit_nbytes=tiers.memory_limit_nbytes,
            disk_nbytes=tiers.file.nbytes,
            index_nbytes=tiers.index.nbytes,
        )

    @override
    def close(self) -> None:
        self.tiers.close()

    def _place(self, task: str, row: int, near: frozenset[str]) -> VectorPlace:
        held = self.tiers.memory_nbytes_of(row)
        tier = Tier.device if task in near else Tier.memory if held else Tier.disk
        return VectorPlace(task, tier, held, self.tiers.scores.get(row))

    @functools.cached_property
    def _resident(self) -> TaskVectorBank:
        """The same vectors and blocks on the device: of the whole bank where all tasks are asked for."""
        if self._file_rows == tuple(range(len(self.tiers.file.tasks))):
            return self._shared.whole.select_blocks(self.blocks.names)
        return self.extract(self.tasks)

    def __repr__(self) -> str:
        return f"TieredBank({len(self.blocks)} blocks, {self.storage}, {self.residency()})"
