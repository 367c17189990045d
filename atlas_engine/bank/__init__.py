"""Task vectors: blocks, vectors, the bank of them and the file it lives in. Knows nothing of images."""

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
