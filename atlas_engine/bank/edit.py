"""Banks made of banks: joined, merged by TIES, with one more vector, compared after compression.

join_banks([cars, signs])                            # all vectors of several banks of one base
merge_ties(bank.select(["cars", "signs"]))           # one vector, merged without learning
add_vector_to_file(vector, Path("bank.safetensors"))
fidelity(bank, bank.stored_as("int8"))["cars"].cosine                                # 0.99996
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
from atlas_engine.bank.vector import TaskVector, VectorInfo, common_kind
from atlas_engine.errors import BankError

__all__ = [
    "Fidelity",
    "add_vector_to_file",
    "check_bank_target",
    "check_kind_mixes",
    "fidelity",
    "join_banks",
    "merge_ties",
    "ties_contributions",
    "with_bank",
    "with_vector",
]


def join_banks(banks: Sequence[TaskVectorBank]) -> TaskVectorBank:
    """The vectors of all banks, in order. The stored numbers are copied: nothing is rounded again."""
    if not banks:
        raise BankError("a bank needs at least one task vector and got none.")
    first = banks[0]
    for bank in banks[1:]:
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
        [_stack(panels) for panels in zip(*(_own_panels(bank) for bank in banks), strict=True)],
        tasks=[task for bank in banks for task in bank.tasks],
        blocks=first.blocks,
        base=first.base,
        infos=[info for bank in banks for info in bank.infos],
        storage=first.storage,
    )


def _own_panels(bank: TaskVectorBank) -> Sequence[Panel]:
    """Panels of the bank's tasks alone, where it shares panels with a larger bank."""
    return bank.panels if bank.rows is None else [panel.select_tasks(bank.rows) for panel in bank.panels]


def _stack(panels: Sequence[Panel]) -> Panel:
    """One panel of all tasks: every tensor of a panel has T first."""
    first = panels[0]
    if len(panels) == 1:
        return first
    stacked = {key: torch.cat([panel.tensors()[key] for panel in panels]) for key in first.tensors()}
    return first.with_tensors(stacked)


# ---- TIES


def merge_ties(bank: TaskVectorBank, *, density: float = 0.2, name: str = "ties") -> TaskVector:
    """The vectors merged by TIES (Yadav et al., NeurIPS 2023): trim, elect a sign, average those that agree.

    Of each vector only the fraction `density` of its largest numbers counts. Where vectors disagree about a
    number's sign, the side with the larger sum wins, and the mean is taken over that side alone:
    of 0.5, 0.3 and −0.6 it is 0.4.
    """
    merged = functools.reduce(lambda one, other: one + other, ties_contributions(bank, density=density))
    info = VectorInfo(dataset=" + ".join(bank.tasks), kind=bank.kind)
    return TaskVector(name, merged.blocks, bank.base, info)


def ties_contributions(bank: TaskVectorBank, *, density: float = 0.2) -> list[TaskVector]:
    """What each vector adds to the merged one, under its own name: of 0.5, 0.3 and −0.6, 0.25, 0.15 and 0.

    With one coefficient for all of them it is TIES; each may also get a coefficient of its own.
    """
    if not 0 < density <= 1:
        raise BankError(f"density={density} is out of range. It must be above 0 and at most 1.")
    thresholds = _trim_thresholds(bank, density)  # (T)
    blocks: list[dict[str, Tensor]] = [{} for _ in bank.tasks]
    for block in bank.blocks:
        tau = bank.vectors_of(block)  # (T n)
        trimmed = torch.where(tau.abs() >= thresholds[:, None], tau, 0)
        # sign consensus: keep the numbers that have the sign of the sum, and average over them
        agreeing = torch.where(trimmed * trimmed.sum(0).sign() > 0, trimmed, 0)
        averaged = agreeing / (agreeing != 0).sum(0).clamp(min=1)
        for own, contribution in zip(blocks, averaged, strict=True):
            own[block.name] = contribution.reshape(block.shape)
    return [
        TaskVector(task, own, bank.base, info)
        for task, own, info in zip(bank.tasks, blocks, bank.infos, strict=True)
    ]


def _trim_thresholds(bank: TaskVectorBank, density: float) -> Tensor:
    """The magnitude that the fraction `density` of each vector's numbers reaches, (T)."""
    magnitudes = [bank.vectors_of(block).abs() for block in bank.blocks]
    count = sum(tau.shape[1] for tau in magnitudes)
    kept = max(1, math.ceil(density * count))
    rows = (torch.cat([tau[t] for tau in magnitudes]) for t in range(len(bank)))
    return torch.stack([row.kthvalue(count - kept + 1).values for row in rows])


# ---- one more vector


def check_bank_target(path: Path, *, base: str, blocks: BlockTable) -> None:
    """Raise unless a vector of this base can be added to the file, or a new file be made in that folder.

    Call it before an hour of training, not after it.
    """
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


def check_kind_mixes(path: Path, *, name: str, kind: str) -> None:
    """Raise if the file, where there is one, has other vectors that do not mix with one of this kind."""
    if path.exists():
        with BankFile(path) as file:
            pairs = zip(file.tasks, file.infos, strict=True)
            common_kind({task: info.kind for task, info in pairs if task != name} | {name: kind})


def add_vector_to_file(vector: TaskVector, path: Path, *, storage: str = "float32") -> None:
    """Add a vector to the file, which is replaced whole or not at all; a new one is made in `storage`."""
    if path.exists():
        bank = with_vector(load_bank(path), vector)
    else:
        bank = TaskVectorBank.from_vectors([vector], storage=storage)
    save_bank(bank, path)


def with_vector(bank: TaskVectorBank, vector: TaskVector) -> TaskVectorBank:
    """The bank with `vector` in the place of the one of its name, else at the end, in the bank's storage.

    The stored numbers of the other vectors are copied, never decoded and stored again, so a bank in int4 or
    low rank may grow one vector at a time without losing accuracy.
    """
    return with_bank(bank, TaskVectorBank.from_vectors([vector], storage=bank.storage, device=bank.device))


def with_bank(bank: TaskVectorBank, added: TaskVectorBank) -> TaskVectorBank:
    """The bank with the vectors of `added`, in the places of those of their names or at the end."""
    others = [task for task in bank.tasks if task not in added.tasks]
    grown = join_banks([bank.select(others), added]) if others else added
    return grown.select((*bank.tasks, *(task for task in added.tasks if task not in bank.tasks)))


# ---- what compression costs


@dataclass(frozen=True)
class Fidelity:
    """How near a stored vector is to the original: cosine, and ‖stored − original‖ / ‖original‖."""

    cosine: float
    relative_error: float


def fidelity(original: TaskVectorBank, stored: TaskVectorBank) -> dict[str, Fidelity]:
    """How near each vector of `stored` is to the one of the same name in `original`, block by block."""
    names = [task for task in stored.tasks if task in original.tasks]
    rows = [original.tasks.index(task) for task in names], [stored.tasks.index(task) for task in names]
    sums = [[0.0] * len(names) for _ in range(3)]  # ⟨a, a⟩, ⟨b, b⟩ and ⟨a, b⟩ of each vector
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
