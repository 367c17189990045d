"""A bank filled up with dummy vectors, to see how the program copes with hundreds: `atlas bank dummy`.

    dummy_bank(bank, vectors=500, seed=0)      # the bank's own vectors first, then dummies

A dummy has the stored numbers of one of the bank's vectors, rolled along each block by a random distance: as
many bytes, nearly the same norm in every block, another direction. Its centroid is a random direction, so it
looks like no data set. A dummy depends on the bank, the seed and its own number: 500 dummies begin with the
same 200.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.panels import Panel
from atlas_engine.bank.storage import bundle_small_blocks
from atlas_engine.bank.vector import VectorInfo
from atlas_engine.errors import BankError
from atlas_engine.runtime import generator

__all__ = ["dummy_bank"]


def dummy_bank(bank: TaskVectorBank, *, vectors: int, seed: int = 0) -> TaskVectorBank:
    """A bank of so many vectors, in the same storage: the bank's own, and dummies after them."""
    if vectors < len(bank):
        raise BankError(
            f"vectors={vectors} is below the {len(bank)} that the bank has of its own, which come first. "
            f"Ask for {len(bank)} or more."
        )
    count = vectors - len(bank)
    panels = (_lengthen(panel, count, seed=seed) for panel in bank.iter_panels())
    return TaskVectorBank(
        bundle_small_blocks(sorted(panels, key=lambda panel: panel.block_indices), bank.blocks),
        tasks=[*bank.tasks, *(f"dummy-{number + 1:03d}" for number in range(count))],
        blocks=bank.blocks,
        base=bank.base,
        infos=[*bank.infos, *(_dummy_info(bank, number, seed=seed) for number in range(count))],
        storage=bank.storage,
    )


def _lengthen(panel: Panel, count: int, *, seed: int) -> Panel:
    """The panel with `count` more tasks: its own in turn, each rolled by a distance of its own."""
    return panel.with_tensors(
        {
            part: _with_rolled(tensor, count, seed=(seed * 1009 + panel.block_indices[0]) * 7 + place)
            for place, (part, tensor) in enumerate(panel.tensors().items())
        }
    )


def _with_rolled(tensor: Tensor, count: int, *, seed: int) -> Tensor:
    """(T …) -> (T + count …)."""
    longer = tensor.new_empty(len(tensor) + count, *tensor.shape[1:])
    longer[: len(tensor)] = tensor
    size = tensor[0].numel()
    distances = torch.randint(size, (count,), generator=generator(seed)).tolist()
    for number, distance in enumerate(distances):
        row = tensor[number % len(tensor)].reshape(-1)
        longer[len(tensor) + number] = row.roll(distance).view(tensor.shape[1:])
    return longer


def _dummy_info(bank: TaskVectorBank, number: int, *, seed: int) -> VectorInfo:
    """What the manifest says of a dummy; it has a centroid where the bank's own vectors have one."""
    text = f"dummy {seed} {number} {bank.fingerprint}"
    direction = torch.randn(len(bank.infos[0].centroid), generator=generator(seed * 1_000_003 + number))
    centroid = direction / direction.norm() if len(direction) else direction
    return VectorInfo(
        dataset="dummy",
        centroid=tuple(centroid.tolist()),
        provenance={"source": f"{bank.tasks[number % len(bank)]}, rolled"},
        digest=hashlib.sha256(text.encode()).hexdigest(),
        kind=bank.kind,
    )
