"""The bank: T task vectors of one base model, resident on one device, immutable, shared by all users.

    bank = TaskVectorBank.from_vectors([cars, signs, digits], storage="int8")
    bank.select(["cars", "signs"]), bank.without(["digits"])     # some of its vectors
    bank.select_blocks(names)                                    # some blocks of the tower only
    bank.to("cuda"), bank.stored_as("int4"), bank.fit(2**30)

Its numbers live in panels (see `panels`), those of all small blocks together in one. `select` and `without`
share memory with the bank they come from as long as more than half of it is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from atlas_engine.bank.blocks import Block, BlockTable
from atlas_engine.bank.budget import MemoryPlan, plan_memory
from atlas_engine.bank.panels import Panel
from atlas_engine.bank.residency import Residency, Tier, VectorPlace
from atlas_engine.bank.storage import assemble, bundle_small_blocks, find_storage
from atlas_engine.bank.vector import LINEAR, TaskVector, VectorInfo, common_kind
from atlas_engine.display import rows_html
from atlas_engine.errors import BankError, unknown_name
from atlas_engine.files import human_nbytes

__all__ = ["FittedBank", "TaskVectorBank", "at_block"]


@dataclass(frozen=True)
class FittedBank:
    """A bank made to fit a memory budget, and what was done to it; `str(fitted.plan)` says it in words."""

    bank: TaskVectorBank
    plan: MemoryPlan


class TaskVectorBank:
    """T task vectors over M blocks on one device, all composed in one way. Built once, never changed."""

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
        self._panels = tuple(panels)
        self.tasks = tuple(tasks)
        self.blocks = blocks
        self.base = base
        self.infos = tuple(infos)
        self.storage = storage
        self.rows = None if rows is None else tuple(rows)
        """Which of the panels' tasks are this bank's, where it shares panels with a larger one."""
        if len(set(self.tasks)) != len(self.tasks):
            raise BankError(f"two vectors have one name in {', '.join(self.tasks)}. Give each its own.")
        self.kind = common_kind({task: info.kind for task, info in zip(self.tasks, self.infos, strict=True)})
        """How its vectors were made (`vector.VECTOR_KINDS`); standard where it has standard and LoRA ones."""

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

        return cls(
            assemble(first.table, find_storage(storage), vectors_of=vectors_of, device=torch.device(device)),
            tasks=[vector.name for vector in vectors],
            blocks=first.table,
            base=first.base,
            infos=[replace(vector.info, digest=vector.digest()) for vector in vectors],
            storage=storage,
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = [
            (task, info.dataset, _percent(info.accuracy_before), _percent(info.accuracy_after))
            for task, info in zip(self.tasks, self.infos, strict=True)
        ]
        return rows_html(repr(self), ("vector", "trained on", "before", "after"), rows)

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The numbers: a panel per large block and one of all small blocks."""
        return self._panels

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
        if self.kind == LINEAR:  # the same numbers as weights would answer otherwise
            facts.append(LINEAR)
        facts += [f"{task} {info.digest}" for task, info in zip(self.tasks, self.infos, strict=True)]
        return hashlib.sha256("\n".join(facts).encode()).hexdigest()

    @cached_property
    def row_index(self) -> Tensor | None:
        """`rows` as a tensor on the bank's device."""
        return None if self.rows is None else torch.tensor(self.rows, device=self.device)

    @cached_property
    def block_norms(self) -> Tensor:
        """‖τ[t, m]‖ of every task and block, (T M) on the CPU. The first use reads the bank once."""
        squares = torch.zeros(len(self.tasks), len(self.blocks), device=self.device)
        for panel in self.iter_panels():
            for _, _, tau in panel.iter_chunks(torch.float32):
                squares[:, panel.block_indices[0]] += tau.square().sum(1).to(squares.device)
        return squares.sqrt().cpu()

    def __len__(self) -> int:
        return len(self.tasks)

    def select(self, names: Iterable[str]) -> TaskVectorBank:
        """The bank of these tasks only, in this order. Shares memory while more than half is kept."""
        positions = [self._position(name) for name in ([names] if isinstance(names, str) else names)]
        if not positions:
            raise BankError(f"no task was selected. Pick from: {', '.join(self.tasks)}.")
        if positions == list(range(len(self.tasks))):
            return self
        rows = positions if self.rows is None else [self.rows[i] for i in positions]
        if 2 * len(rows) > self.panels[0].task_count:
            return self._derive(self.panels, positions=positions, rows=rows)
        return self._derive([panel.select_tasks(rows) for panel in self.panels], positions=positions)

    def extract(self, names: Iterable[str]) -> TaskVectorBank:
        """The bank of these tasks only, in this order, in memory of its own: its sums depend on no others."""
        chosen = self.select(names)
        if chosen.rows is None:
            return chosen
        panels = [panel.select_tasks(chosen.rows) for panel in chosen.panels]
        return chosen._derive(panels, positions=range(len(chosen)))

    def without(self, names: Iterable[str]) -> TaskVectorBank:
        """The bank less these tasks, as leave-one-out evaluation needs it."""
        left_out = {self._position(name) for name in ([names] if isinstance(names, str) else names)}
        return self.select([name for i, name in enumerate(self.tasks) if i not in left_out])

    def select_blocks(self, names: Iterable[str]) -> TaskVectorBank:
        """The bank of these blocks only, in the table's order, for a tower whose other blocks stay fixed.

        Shares memory with this bank; only the bundle of small blocks is made anew. `infos` and `base` remain
        those of the whole vectors and the whole base model.
        """
        kept = sorted({self.blocks.index(name) for name in ([names] if isinstance(names, str) else names)})
        if not kept:
            raise BankError("no block was named. Pass the names of some of the bank's blocks.")
        if len(kept) == len(self.blocks):
            return self
        blocks = BlockTable(self.blocks[m] for m in kept)
        new_index = {m: i for i, m in enumerate(kept)}
        singles = (single for panel in self.panels for single in panel.split())
        moved = (
            at_block(single, new_index[single.block_indices[0]])
            for single in singles
            if single.block_indices[0] in new_index
        )
        panels = bundle_small_blocks(moved, blocks)
        return self._derive(panels, positions=range(len(self.tasks)), rows=self.rows, blocks=blocks)

    def to(self, device: torch.device | str) -> TaskVectorBank:
        """The bank on another device, moved panel by panel; itself when it is there already."""
        if torch.device(device) == self.device:
            return self
        moved = [panel.to(device) for panel in self.panels]
        return self._derive(moved, positions=range(len(self.tasks)), rows=self.rows)

    def stored_as(self, storage: str) -> TaskVectorBank:
        """The bank in another storage format, on the same device, made block by block."""
        if storage == self.storage and self.rows is None:
            return self
        panels = assemble(self.blocks, find_storage(storage), vectors_of=self.vectors_of, device=self.device)
        return self._derive(panels, positions=range(len(self.tasks)), storage=storage)

    def fit(self, budget_nbytes: int) -> FittedBank:
        """The bank within a memory budget: narrower storage first, and only then fewer vectors."""
        plan = plan_memory(
            self.blocks,
            tasks=self.tasks,
            infos=self.infos,
            storage=self.storage,
            budget_nbytes=budget_nbytes,
        )
        return FittedBank(self.select(plan.kept).stored_as(plan.storage), plan)

    def iter_panels(self) -> Iterator[Panel]:
        """One panel of this bank's tasks per block, in no fixed order. `BankFile` has the same method."""
        for panel in self.panels:
            for single in panel.split():
                yield single if self.rows is None else single.select_tasks(self.rows)

    def block_panel(self, m: int, positions: Sequence[int]) -> Panel:
        """The panel of block `m` with the tasks at these positions, in this order, in memory of its own."""
        rows = positions if self.rows is None else [self.rows[t] for t in positions]
        return self._single_panels[m].select_tasks(rows)

    # ---- tiers: a bank on disk overrides these, a resident one has nothing to do (`bank.tiered`)

    def prefetch(self, names: Sequence[str]) -> None:
        """Begin to read these tasks' vectors, if they are on disk, in the background and in this order."""

    def rate(self, scores: Mapping[str, float]) -> None:
        """Take note of how well vectors suit the present images: those of low scores leave memory first."""

    def hold(self, used: TaskVectorBank, names: Iterable[str]) -> None:
        """Take note that `used` has vectors of these tasks on its device for as long as it lives."""

    def residency(self) -> Residency:
        """Where the vectors are now."""
        vectors = tuple(VectorPlace(task, Tier.device) for task in self.tasks)
        return Residency(vectors, device=str(self.device), device_nbytes=self.nbytes)

    def close(self) -> None:
        """Let go of the bank's file, where it has one open."""

    def vectors_of(self, block: str | Block) -> Tensor:
        """τ of one block for every task, widened to float32, (T n)."""
        m = self.blocks.index(block)
        panel, start = self._places[m]
        tau = panel.decode(start, start + self.blocks[m].numel)
        return tau if self.row_index is None else tau.index_select(0, self.row_index)

    def vector(self, name: str) -> TaskVector:
        """One task's vector, widened to float32."""
        t = self._position(name)
        blocks = {b.name: self.vectors_of(b)[t].reshape(b.shape).clone() for b in self.blocks}
        return TaskVector(name, blocks, self.base, self.infos[t])

    @cached_property
    def _places(self) -> dict[int, tuple[Panel, int]]:
        """Where each block's numbers are: its panel, and where they begin in it."""
        return {
            m: (panel, start)
            for panel in self.panels
            for m, start in zip(panel.block_indices, panel.offsets(), strict=True)
        }

    @cached_property
    def _single_panels(self) -> dict[int, Panel]:
        """The panel of each block, over the same memory."""
        return {single.block_indices[0]: single for panel in self.panels for single in panel.split()}

    def _position(self, name: str) -> int:
        if name not in self.tasks:
            raise BankError(unknown_name("task", name, self.tasks))
        return self.tasks.index(name)

    def _derive(
        self,
        panels: Sequence[Panel],
        *,
        positions: Iterable[int],
        rows: Sequence[int] | None = None,
        storage: str | None = None,
        blocks: BlockTable | None = None,
    ) -> TaskVectorBank:
        """A bank of the tasks at these positions, over other panels."""
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


def at_block(panel: Panel, block_index: int) -> Panel:
    """The same numbers at another place of the block table."""
    dataclass_panel: Any = panel  # every panel is a dataclass, which their base class cannot say
    moved: Panel = replace(dataclass_panel, block_indices=(block_index,))
    return moved


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
