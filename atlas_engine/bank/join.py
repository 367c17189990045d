"""Several banks of one base as one bank. Knows nothing of files.

bank = joined([cars, signs])        # each of one vector or of many, all in the same storage
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.panels import Panel
from atlas_engine.errors import BankError

__all__ = ["joined"]


def joined(banks: Sequence[TaskVectorBank]) -> TaskVectorBank:
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
