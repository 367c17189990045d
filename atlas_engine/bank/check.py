"""What a bank file holds, without loading it: the length of each vector, and whether every number is sound.

with BankFile("bank.safetensors") as file:
    vector_norms(file)
check_bank("bank.safetensors", base=theta0)      # a list of checks, each good or not
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from atlas_engine.bank.bank_file import BankFile
from atlas_engine.bank.blocks import Block, block_table
from atlas_engine.bank.vector import fingerprint
from atlas_engine.errors import BankError

__all__ = ["BankCheck", "check_bank", "vector_norms"]

OnBlock = Callable[[int], None]
"""Called with 1 after each block, to show progress."""


@dataclass(frozen=True)
class BankCheck:
    """One check of a bank file: whether it is good, and what was found."""

    name: str
    good: bool
    detail: str


def vector_norms(file: BankFile, *, on_block: OnBlock = lambda _: None) -> tuple[float, ...]:
    """‖τ‖ of every vector, read block by block."""
    total = torch.zeros(len(file.tasks), dtype=torch.float64)
    for _, squares in _squared_norms(file):
        total += squares
        on_block(1)
    return tuple(math.sqrt(value) for value in total.tolist())


def check_bank(
    path: Path | str, *, base: Mapping[str, Tensor] | None = None, on_block: OnBlock = lambda _: None
) -> list[BankCheck]:
    """The checks of a bank file: header, checksums, finite numbers and, if `base` is given, its base."""
    try:
        file = BankFile(path)
    except BankError as error:
        return [BankCheck("file", False, str(error))]
    with file:
        content = f"{len(file.tasks)} vectors × {len(file.blocks)} blocks, {file.storage}"
        checks = [BankCheck("file", True, content), *_check_numbers(file, on_block)]
        return checks if base is None else [*checks, _check_base(file, base)]


def _check_numbers(file: BankFile, on_block: OnBlock) -> list[BankCheck]:
    bad: list[str] = []
    try:
        for block, squares in _squared_norms(file):
            finite = torch.isfinite(squares).tolist()
            bad += [f"{file.tasks[t]}: {block.name}" for t, is_finite in enumerate(finite) if not is_finite]
            on_block(1)
    except BankError as error:
        return [BankCheck("checksums", False, str(error))]
    detail = f"NaN or infinity in {len(bad)}, the first {bad[0]}" if bad else "all finite"
    return [
        BankCheck("checksums", True, "every tensor matches its own"),
        BankCheck("numbers", not bad, detail),
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


def _squared_norms(file: BankFile) -> Iterator[tuple[Block, Tensor]]:
    """Σ τ² of each block for every task, (T) in float64; not finite where τ is not."""
    for panel in file.iter_panels():
        total = torch.zeros(len(file.tasks), dtype=torch.float64)
        for _, _, tau in panel.iter_chunks(torch.float32):
            total += tau.double().square().sum(1)
        yield file.blocks[panel.block_indices[0]], total
