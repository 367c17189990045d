"""Task vectors: blocks, vectors, the bank of them, the file it lives in, and how vectors are trained.

    bank = load_bank("bank.safetensors")
    bank.select(["cars", "signs"]).vectors_of("proj")          # (T n)

Nothing here knows image files, text or any model library.
"""

from __future__ import annotations

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import BankFile, load_bank, save_bank
from atlas_engine.bank.blocks import Block, BlockTable, block_table
from atlas_engine.bank.vector import TaskVector, VectorInfo, fingerprint

__all__ = [
    "BankFile",
    "Block",
    "BlockTable",
    "TaskVector",
    "TaskVectorBank",
    "VectorInfo",
    "block_table",
    "fingerprint",
    "load_bank",
    "save_bank",
]
