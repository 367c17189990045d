"""A bank file looked at without loading it: its vectors' lengths, and whether it is sound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from atlas_engine.bank.blocks import Block, block_table
from atlas_engine.bank.store import BankFile
from atlas_engine.bank.vector import fingerprint
from atlas_engine.errors import BankError

__all__ = ["Check", "check_bank", "norms"]

OnBlock = Callable[[int], None]


@dataclass(frozen=True)
class Check:
    """One thing looked at, whether it is as it should be, and what was found."""

    name: str
    good: bool
    detail: str


def norms(file: BankFile, *, on_block: OnBlock = lambda _: None) -> tuple[float, ...]:
    """‖τ‖ of every vector, block by block; `on_block` is told of each."""
    total = torch.zeros(len(file.tasks), dtype=torch.float64)
    for _, squares in _squares(file):
        total += squares
        on_block(1)
    return tuple(math.sqrt(value) for value in total.tolist())


def check_bank(
    path: Path | str, *, base: Mapping[str, Tensor] | None = None, on_block: OnBlock = lambda _: None
) -> list[Check]:
    """What holds of a bank file: header, checksums, finite numbers and, where one is given, its base."""
    try:
        file = BankFile(path)
    except BankError as error:
        return [Check("file", False, str(error))]
    with file:
        held = Check("file", True, f"{len(file.tasks)} vectors × {len(file.blocks)} blocks, {file.storage}")
        checks = [held, *_check_numbers(file, on_block)]
        return checks if base is None else [*checks, _check_base(file, base)]


def _check_numbers(file: BankFile, on_block: OnBlock) -> list[Check]:
    wild: list[str] = []
    try:
        for block, squares in _squares(file):
            good = torch.isfinite(squares).tolist()
            wild += [f"{file.tasks[t]}: {block.name}" for t, fine in enumerate(good) if not fine]
            on_block(1)
    except BankError as error:
        return [Check("checksums", False, str(error))]
    found = f"NaN or infinity in {len(wild)}, the first {wild[0]}" if wild else "all finite"
    return [Check("checksums", True, "every tensor matches its own"), Check("numbers", not wild, found)]


def _check_base(file: BankFile, base: Mapping[str, Tensor]) -> Check:
    if file.blocks != block_table(base.items()):
        return Check("base", False, "the model has other blocks. Give the one that the bank was made for.")
    found = fingerprint(base)
    if found != file.base:
        detail = f"made for {file.base[:12]}, but the model is {found[:12]}. Give the one it was made for."
        return Check("base", False, detail)
    return Check("base", True, f"the model's own, {found[:12]}")


def _squares(file: BankFile) -> Iterator[tuple[Block, Tensor]]:
    """Σ τ² of each block for every task, (T) in float64; not finite where τ is not."""
    for panel in file.parts():
        total = torch.zeros(len(file.tasks), dtype=torch.float64)
        for _, _, tau in panel.pieces(torch.float32):
            total += tau.double().square().sum(1)
        yield file.blocks[panel.units[0]], total
