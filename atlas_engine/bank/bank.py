"""The bank: T task vectors of one base model, resident on one device, immutable, shared by all users.

    bank = TaskVectorBank.from_vectors([cars, signs, digits], storage="int8")
    bank.select(["cars", "signs"]), bank.without(["digits"]), bank.to("cuda"), bank.memory()
    bank.over(names)                                         # some blocks of the tower only

Its numbers live in panels (see `panels`), the small blocks of the tower all in one. `select` and `without`
share memory with the bank they come from as long as more than half of it is kept. Knows nothing of files,
coefficients or models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from atlas_engine.bank.blocks import Block, BlockTable
from atlas_engine.bank.budget import MemoryPlan, plan_memory
from atlas_engine.bank.panels import BundlePanel, DensePanel, Panel, Rows
from atlas_engine.bank.storage import assemble, bundle_small_blocks, storage_named
from atlas_engine.bank.vector import TaskVector, VectorInfo
from atlas_engine.errors import BankError, unknown_name
from atlas_engine.files import human_nbytes

__all__ = ["FittedBank", "MemoryUse", "TaskVectorBank"]


@dataclass(frozen=True)
class MemoryUse:
    """Bytes a bank takes: all of it, per vector, and the same in float32 for comparison."""

    nbytes: int
    nbytes_per_task: int
    nbytes_as_float32: int
    by_kind: dict[str, int]


@dataclass(frozen=True)
class FittedBank:
    """A bank made to fit a memory budget, and what was done to it; `str(fit.plan)` is the sentence for it."""

    bank: TaskVectorBank
    plan_memory: MemoryPlan


class TaskVectorBank:
    """T task vectors over M blocks on one device. Built once, never changed."""

    def __init__(
        self,
        panels: Sequence[Panel],
        *,
        tasks: Sequence[str],
        blocks: BlockTable,
        base: str,
        infos: Sequence[VectorInfo],
        storage: str,
        rows: Sequence[int] | None = None,
    ) -> None:
        self.panels = tuple(panels)
        self.tasks = tuple(tasks)
        self.blocks = blocks
        self.base = base
        self.infos = tuple(infos)
        self.storage = storage
        self.rows = None if rows is None else tuple(rows)
        """Which of the panels' tasks are this bank's, where it shares panels with a larger one."""
        if len(set(self.tasks)) != len(self.tasks):
            raise BankError(f"two vectors have one name in {', '.join(self.tasks)}. Give each its own.")

    @classmethod
    def from_vectors(
        cls, vectors: Sequence[TaskVector], *, storage: str = "float32", device: torch.device | str = "cpu"
    ) -> TaskVectorBank:
        """A bank of vectors that must share blocks and base; an error lists what differs."""
        if not vectors:
            raise BankError(
                "a bank needs at least one task vector and got none. Make one with TaskVector.between."
            )
        first = vectors[0]
        for vector in vectors[1:]:
            first.require_mixable(vector)

        def vectors_of(block: Block) -> Tensor:
            return torch.stack([vector.blocks[block.name].flatten().float() for vector in vectors])

        panels = assemble(
            first.table, storage_named(storage), vectors_of=vectors_of, device=torch.device(device)
        )
        return cls(
            panels,
            tasks=[vector.name for vector in vectors],
            blocks=first.table,
            base=first.base,
            infos=[replace(vector.info, digest=vector.digest()) for vector in vectors],
            storage=storage,
        )

    @property
    def device(self) -> torch.device:
        """Where the bank is."""
        return self.panels[0].device

    @property
    def nbytes(self) -> int:
        """Bytes held on the device, shared ones included."""
        return sum(panel.nbytes for panel in self.panels)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of which vectors these are, in order, over which base. The same in every storage format."""
        facts = [self.base, self.blocks.fingerprint]
        facts += [f"{task} {info.digest}" for task, info in zip(self.tasks, self.infos, strict=True)]
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()

    @cached_property
    def row_index(self) -> Tensor | None:
        """`rows` on the bank's device, for the kernel."""
        return None if self.rows is None else torch.tensor(self.rows, device=self.device)

    @cached_property
    def lengths(self) -> Tensor:
        """‖τ[t, m]‖ of every task and block, (T M) on the CPU: the bank is read once, when first asked."""
        squares = torch.zeros(len(self.tasks), len(self.blocks), device=self.device)
        for panel in self.parts():
            for _, _, tau in panel.pieces(torch.float32):
                squares[:, panel.units[0]] += tau.square().sum(1)
        return squares.sqrt().cpu()

    def __len__(self) -> int:
        return len(self.tasks)

    def select(self, names: Iterable[str]) -> TaskVectorBank:
        """The bank of these tasks only, in this order. Shares memory while more than half is kept."""
        wanted = [self._position(name) for name in ([names] if isinstance(names, str) else names)]
        if not wanted:
            raise BankError(f"no task was selected. Pick from: {', '.join(self.tasks)}.")
        if wanted == list(range(len(self.tasks))):
            return self
        rows = wanted if self.rows is None else [self.rows[i] for i in wanted]
        shared = 2 * len(wanted) > self.panels[0].tasks
        return self._derived(
            self.panels if shared else [panel.taken(rows) for panel in self.panels],
            positions=wanted,
            rows=rows if shared else None,
        )

    def without(self, names: Iterable[str]) -> TaskVectorBank:
        """The bank less these tasks, as leave-one-out evaluation needs it."""
        gone = {self._position(name) for name in ([names] if isinstance(names, str) else names)}
        return self.select([name for i, name in enumerate(self.tasks) if i not in gone])

    def over(self, names: Iterable[str]) -> TaskVectorBank:
        """The bank of these blocks only, in the table's order, for a tower whose other blocks stay put.

        Shares memory with this bank; only the bundle of small blocks is made anew. `infos` and `base` go on
        speaking of the whole vectors and the whole base model.
        """
        kept = sorted({self.blocks.index(name) for name in ([names] if isinstance(names, str) else names)})
        if not kept:
            raise BankError("no block was named. Pass the names of some of the bank's blocks.")
        if len(kept) == len(self.blocks):
            return self
        position = {m: i for i, m in enumerate(kept)}
        every = [part for panel in self.panels for part in _single(panel)]
        panels = bundle_small_blocks(_moved(part, position[m]) for m, part in every if m in position)
        blocks = BlockTable(self.blocks[m] for m in kept)
        return self._derived(panels, positions=range(len(self.tasks)), rows=self.rows, blocks=blocks)

    def to(self, device: torch.device | str) -> TaskVectorBank:
        """The bank on another device, moved panel by panel; itself when it is there already."""
        if torch.device(device) == self.device:
            return self
        moved = [
            panel.rebuilt({k: t.to(device) for k, t in panel.tensors().items()}) for panel in self.panels
        ]
        return self._derived(moved, positions=range(len(self.tasks)), rows=self.rows)

    def stored_as(self, storage: str) -> TaskVectorBank:
        """The bank in another storage format, on the same device, made block by block."""
        if storage == self.storage and self.rows is None:
            return self
        panels = assemble(self.blocks, storage_named(storage), vectors_of=self.vectors_of, device=self.device)
        return self._derived(panels, positions=range(len(self.tasks)), storage=storage)

    def fit(self, budget_nbytes: int) -> FittedBank:
        """The bank within a memory budget: narrower storage first, and only then fewer vectors."""
        made = plan_memory(
            self.blocks,
            tasks=self.tasks,
            infos=self.infos,
            storage=self.storage,
            budget_nbytes=budget_nbytes,
        )
        kept = self if made.kept == self.tasks else self.select(made.kept)
        return FittedBank(kept.stored_as(made.storage), made)

    def parts(self) -> Iterator[Panel]:
        """One panel per block, in no fixed order: the bank as a stream, as a bank file gives it too."""
        for panel in self.panels:
            for part in panel.rows() if isinstance(panel, BundlePanel) else [panel]:
                single = DensePanel((part.unit,), part.data, part.scale) if isinstance(part, Rows) else part
                yield single if self.rows is None else single.taken(self.rows)

    def vectors_of(self, block: str | Block) -> Tensor:
        """τ of one block for every task, widened to float32, (T n)."""
        m = self.blocks.index(block)
        panel, span = self._home[m]
        tau = panel.decode(*span)
        return tau if self.row_index is None else tau.index_select(0, self.row_index)

    def vector(self, name: str) -> TaskVector:
        """One task's vector, widened to float32."""
        t = self._position(name)
        blocks = {b.name: self.vectors_of(b)[t].reshape(b.shape).clone() for b in self.blocks}
        return TaskVector(name, blocks, self.base, self.infos[t])

    def memory(self) -> MemoryUse:
        """What the bank takes on its device, and by kind of block."""
        by_kind: dict[str, int] = {}
        for panel in self.panels:
            kind = "small" if isinstance(panel, BundlePanel) else self.blocks[panel.units[0]].kind
            by_kind[kind] = by_kind.get(kind, 0) + panel.nbytes
        as_float32 = 4 * self.blocks.numel * len(self.tasks)
        return MemoryUse(self.nbytes, self.nbytes // len(self.tasks), as_float32, by_kind)

    @cached_property
    def _home(self) -> dict[int, tuple[Panel, tuple[int, int]]]:
        """Where each block's numbers are: its panel, and from where to where."""
        home: dict[int, tuple[Panel, tuple[int, int]]] = {}
        for panel in self.panels:
            starts = panel.offsets() if isinstance(panel, BundlePanel) else (0,)
            for unit, at in zip(panel.units, starts, strict=True):
                home[unit] = (panel, (at, at + self.blocks[unit].numel))
        return home

    def _position(self, name: str) -> int:
        if name not in self.tasks:
            raise BankError(unknown_name("task", name, self.tasks))
        return self.tasks.index(name)

    def _derived(
        self,
        panels: Sequence[Panel],
        *,
        positions: Iterable[int],
        rows: Sequence[int] | None = None,
        storage: str | None = None,
        blocks: BlockTable | None = None,
    ) -> TaskVectorBank:
        kept = list(positions)
        return TaskVectorBank(
            panels,
            tasks=[self.tasks[i] for i in kept],
            blocks=blocks or self.blocks,
            base=self.base,
            infos=[self.infos[i] for i in kept],
            storage=storage or self.storage,
            rows=rows,
        )

    def __repr__(self) -> str:
        size = human_nbytes(self.nbytes)
        return (
            f"TaskVectorBank({len(self.tasks)} tasks × {len(self.blocks)} blocks, "
            f"{self.storage}, {size} on {self.device})"
        )


def _single(panel: Panel) -> list[tuple[int, Panel | Rows]]:
    """The blocks of a panel with their positions in the table, small ones apart from each other."""
    if isinstance(panel, BundlePanel):
        return [(row.unit, row) for row in panel.rows()]
    return [(panel.units[0], panel)]


def _moved(part: Panel | Rows, unit: int) -> Panel | Rows:
    """The same numbers at another position of the table."""
    if isinstance(part, Rows):
        return replace(part, unit=unit)
    panel: Any = part  # every panel is a dataclass, which their base class cannot say
    moved: Panel = replace(panel, units=(unit,))
    return moved
