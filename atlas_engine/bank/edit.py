"""Several banks of one base as one bank. Knows nothing of files.

bank = joined([cars, signs])        # each of one vector or of many, all in the same storage
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import BankFile, load_bank, save_bank
from atlas_engine.bank.blocks import BlockTable
from atlas_engine.bank.panels import Panel
from atlas_engine.bank.vector import TaskVector, VectorInfo
from atlas_engine.errors import BankError

__all__ = [
    "Fidelity",
    "add_vector_to_file",
    "check_bank_target",
    "compress",
    "fidelity",
    "join_banks",
    "merge_ties",
    "ties_contributions",
    "with_vector",
]


def join_banks(banks: Sequence[TaskVectorBank]) -> TaskVectorBank:
    """The vectors of all banks, in order. They are stored as they were: nothing is rounded again."""
    if not banks:
        raise BankError("a bank needs at least one task vector and got none.")
    whole = [bank if bank.rows is None else _own(bank, bank.rows) for bank in banks]
    first = whole[0]
    for bank in whole[1:]:
        if (bank.base, bank.blocks) != (first.base, first.blocks):
            raise BankError(
                f"the vectors {', '.join(bank.tasks)} and {', '.join(first.tasks)} were taken from different "
                f"bases ({bank.base[:12]} and {first.base[:12]}). Only vectors of one base can be mixed."
            )
        if bank.storage != first.storage:
            raise BankError(
                f"one bank is stored as {first.storage}, another as {bank.storage}. Store them alike first."
            )
    return TaskVectorBank(
        [_stacked(panels) for panels in zip(*(bank.panels for bank in whole), strict=True)],
        tasks=[task for bank in whole for task in bank.tasks],
        blocks=first.blocks,
        base=first.base,
        infos=[info for bank in whole for info in bank.infos],
        storage=first.storage,
    )


def _own(bank: TaskVectorBank, rows: Sequence[int]) -> TaskVectorBank:
    """A bank that shares panels with a larger one, with panels of its own."""
    return TaskVectorBank(
        [panel.taken(rows) for panel in bank.panels],
        tasks=bank.tasks,
        blocks=bank.blocks,
        base=bank.base,
        infos=bank.infos,
        storage=bank.storage,
    )


def _stacked(panels: Sequence[Panel]) -> Panel:
    """One panel of all tasks: every tensor of a panel has T first."""
    if len(panels) == 1:
        return panels[0]
    keys = panels[0].tensors()
    return panels[0].rebuilt({key: torch.cat([panel.tensors()[key] for panel in panels]) for key in keys})


# ---- Several vectors merged without learning. Knows nothing of images or coefficients. merged =
# ties(bank.select(["cars", "signs"])) # one vector TaskVectorBank.from_vectors([merged]) # a bank of one,
# to scale as any other shares_in_ties(bank) # what each vector gives to it: their sum is `merge_ties`
def merge_ties(bank: TaskVectorBank, *, density: float = 0.2, name: str = "ties") -> TaskVector:
    """The vectors merged by TIES (NeurIPS 2023): trim, elect a sign, average those that agree.

    Of each vector only the share `density` of its largest numbers counts. Where vectors disagree about a
    number's sign, the side with the larger sum wins, and the mean is taken over that side alone:
    of 0.5, 0.3 and −0.6 it is 0.4.
    """
    merged = functools.reduce(lambda one, other: one + other, ties_contributions(bank, density=density))
    return TaskVector(name, merged.blocks, bank.base, VectorInfo(dataset=" + ".join(bank.tasks)))


def ties_contributions(bank: TaskVectorBank, *, density: float = 0.2) -> list[TaskVector]:
    """What each vector gives to the merged one, under its own name: of 0.5, 0.3 and −0.6, 0.25, 0.15 and 0.

    One coefficient for all of them is TIES, and coefficients of their own are more.
    """
    if not 0 < density <= 1:
        raise BankError(f"density={density} is out of range. It must be above 0 and at most 1.")
    least = _thresholds(bank, density)  # (T)
    blocks: list[dict[str, Tensor]] = [{} for _ in bank.tasks]
    for block in bank.blocks:
        tau = bank.vectors_of(block)  # (T n)
        for own, share in zip(blocks, _agreed(torch.where(tau.abs() >= least[:, None], tau, 0)), strict=True):
            own[block.name] = share.reshape(block.shape)
    return [
        TaskVector(task, own, bank.base, info)
        for task, own, info in zip(bank.tasks, blocks, bank.infos, strict=True)
    ]


def _agreed(tau: Tensor) -> Tensor:
    """(T n): those that are not 0 and have the sign of the sum, over how many they are."""
    side = torch.where(tau * tau.sum(0).sign() > 0, tau, 0)
    return side / (side != 0).sum(0).clamp(min=1)


def _thresholds(bank: TaskVectorBank, density: float) -> Tensor:
    """(T): the size that the wanted share of each vector's numbers reaches."""
    sizes = [bank.vectors_of(block).abs() for block in bank.blocks]
    count = sum(tau.shape[1] for tau in sizes)
    kept = max(1, math.ceil(density * count))
    rows = (torch.cat([tau[t] for tau in sizes]) for t in range(len(bank)))
    return torch.stack([row.kthvalue(count - kept + 1).values for row in rows])


# ---- A bank file with one more vector, or with a newer one of the same name. Knows nothing of training.
# require_place("bank.safetensors", base=print0, blocks=table) # before an hour of work, not after it
# deposit(vector, "bank.safetensors") The vectors that are there are not touched: their stored bits are
# copied, never decoded and stored again, so a bank in int4 or low rank may grow one vector at a time
# without wearing out.
def check_bank_target(path: Path, *, base: str, blocks: BlockTable) -> None:
    """Raise unless a vector of this base can be added to the file, or a new file be made in that folder."""
    if not path.parent.is_dir() or path.is_dir():
        raise BankError(f"{path} cannot be a bank file. Give a file name in a folder that exists.")
    if not path.exists():
        return
    with BankFile(path) as file:
        if (file.base, file.blocks) != (base, blocks):
            raise BankError(
                f"{path.name} holds vectors of another base model ({file.base[:12]}, here {base[:12]}). "
                "Choose the model that it was made for, or another file."
            )


def add_vector_to_file(vector: TaskVector, path: Path, *, storage: str = "float32") -> None:
    """Add a vector to the file, which is replaced whole or not at all; a new one is made in `storage`."""
    if path.exists():
        bank = with_vector(load_bank(path), vector)
    else:
        bank = TaskVectorBank.from_vectors([vector], storage=storage)
    save_bank(bank, path)


def with_vector(bank: TaskVectorBank, vector: TaskVector) -> TaskVectorBank:
    """The bank with `vector` in its own storage: in the place of the one so called, else at the end."""
    fresh = TaskVectorBank.from_vectors([vector], storage=bank.storage, device=bank.device)
    others = [task for task in bank.tasks if task != vector.name]
    grown = join_banks([bank.select(others), fresh]) if others else join_banks([fresh])
    return grown.select(bank.tasks if vector.name in bank.tasks else (*bank.tasks, vector.name))


# ---- A bank in fewer bytes, and what that costs in accuracy of its vectors. Knows nothing of files. small
# = compress(bank, "int8") fidelity(bank, small)["cars"].cosine # 0.99996
@dataclass(frozen=True)
class Fidelity:
    """How near a stored vector is to the original: cosine, and ‖stored − original‖ / ‖original‖."""

    cosine: float
    relative_error: float


def compress(bank: TaskVectorBank, storage: str) -> TaskVectorBank:
    """The bank in another storage format, on the same device, made block by block."""
    return bank.stored_as(storage)


def fidelity(original: TaskVectorBank, stored: TaskVectorBank) -> dict[str, Fidelity]:
    """How near each vector of `stored` is to the one of the same name in `original`, block by block."""
    names = [task for task in stored.tasks if task in original.tasks]
    rows = [original.tasks.index(task) for task in names], [stored.tasks.index(task) for task in names]
    sums = [[0.0] * len(names) for _ in range(3)]
    for block in stored.blocks:
        a, b = original.vectors_of(block)[rows[0]].double(), stored.vectors_of(block)[rows[1]].double()
        for total, pair in zip(sums, ((a, a), (b, b), (a, b)), strict=True):
            for i, product in enumerate((pair[0] * pair[1]).sum(1).tolist()):
                total[i] += product
    return {name: _fidelity(*triple) for name, *triple in zip(names, *sums, strict=True)}


def _fidelity(aa: float, bb: float, ab: float) -> Fidelity:
    scale = (aa * bb) ** 0.5
    error = max(aa + bb - 2 * ab, 0.0) ** 0.5
    return Fidelity(ab / scale if scale else 1.0, error / aa**0.5 if aa else 0.0)
