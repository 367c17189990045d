"""A bank of random vectors with the norms of a real one: the control of every study of task vectors.

random_bank(bank, seed=0)         # as many vectors, the same norm in every block, Gaussian directions

What a method gains with such a bank it gains from the freedom to move, not from what the vectors learned.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import Block
from atlas_engine.bank.storage import assemble, find_storage
from atlas_engine.runtime import generator

__all__ = ["random_bank"]


def random_bank(bank: TaskVectorBank, *, seed: int = 0) -> TaskVectorBank:
    """As many random vectors: ‖random[t, m]‖ = ‖τ[t, m]‖ for every task t and block m.

    The bank is made block by block and keeps the storage format, which rounds what is drawn as it rounds the
    real one.
    """
    norms = bank.block_norms  # (T M)

    def vectors_of(block: Block) -> Tensor:
        m = bank.blocks.index(block)
        draw = generator(seed * 1_000_003 + m)
        noise = torch.randn(len(bank), block.numel, generator=draw)
        scale: Tensor = norms[:, m] / noise.norm(dim=1)  # (T)
        return noise * scale[:, None]

    infos = [
        replace(info, digest=hashlib.sha256(f"random {seed} {info.digest}".encode()).hexdigest())
        for info in bank.infos
    ]
    return TaskVectorBank(
        assemble(bank.blocks, find_storage(bank.storage), vectors_of=vectors_of, device=bank.device),
        tasks=bank.tasks,
        blocks=bank.blocks,
        base=bank.base,
        infos=infos,
        storage=bank.storage,
    )
