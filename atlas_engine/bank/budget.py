"""Which storage and which vectors fit a memory budget.

The rule: keep every vector if some format holds them all, and take the finest such format. Only if the
narrowest is still too large, leave out the vectors that helped their own task least.

    plan_memory(blocks, tasks=tasks, infos=infos, storage="float32", budget_nbytes=2**30).storage     # "int8"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atlas_engine.bank.blocks import BlockTable
from atlas_engine.bank.storage import find_storage, vector_nbytes
from atlas_engine.bank.vector import VectorInfo
from atlas_engine.errors import BankError
from atlas_engine.files import human_nbytes

__all__ = ["MemoryPlan", "narrower_storages", "plan_memory"]

LADDER = ("float32", "float16", "int8", "int4")
"""From fine to narrow; each step halves the bytes. bfloat16 is as wide as float16 and less exact."""


@dataclass(frozen=True)
class MemoryPlan:
    """What to keep and how: the answer to a memory budget."""

    storage: str
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    nbytes: int
    budget_nbytes: int

    def __str__(self) -> str:
        left_out = f"; left out {', '.join(self.dropped)}" if self.dropped else ""
        return (
            f"{len(self.kept)} vectors in {self.storage}, {human_nbytes(self.nbytes)} "
            f"of {human_nbytes(self.budget_nbytes)}{left_out}"
        )


def plan_memory(
    blocks: BlockTable,
    *,
    tasks: Sequence[str],
    infos: Sequence[VectorInfo],
    storage: str,
    budget_nbytes: int,
) -> MemoryPlan:
    """The finest storage, no finer than the present one, in which all vectors fit; else the best vectors."""
    for name in narrower_storages(storage):
        each = vector_nbytes(blocks, find_storage(name))
        if each * len(tasks) <= budget_nbytes:
            return MemoryPlan(name, tuple(tasks), (), each * len(tasks), budget_nbytes)

    # not even the narrowest format holds all: keep the vectors with the largest gain
    count = budget_nbytes // each
    if count == 0:
        raise BankError(
            f"the memory budget is {human_nbytes(budget_nbytes)} but one vector takes {human_nbytes(each)} "
            f"in {name}. Give more memory, or compress the bank to low-rank-16."
        )
    order = sorted(range(len(tasks)), key=lambda t: -_gain(infos[t]))  # stable: ties stay in the bank's order
    best = set(order[:count])
    kept = tuple(task for t, task in enumerate(tasks) if t in best)
    dropped = tuple(task for t, task in enumerate(tasks) if t not in best)
    return MemoryPlan(name, kept, dropped, each * len(kept), budget_nbytes)


def narrower_storages(storage: str) -> tuple[str, ...]:
    """The present format and the narrower ones; a low-rank bank can only stay as it is."""
    if storage == "bfloat16":
        return ("bfloat16", *LADDER[2:])
    return LADDER[LADDER.index(storage) :] if storage in LADDER else (storage,)


def _gain(info: VectorInfo) -> float:
    """How much the vector raised the accuracy on its own task; 0 where that is not known."""
    if info.accuracy_before is None or info.accuracy_after is None:
        return 0.0
    return info.accuracy_after - info.accuracy_before
