"""A small engine with a bank of its own: three random directions, for tests of what draws on task vectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import save_bank
from atlas_engine.bank.vector import TaskVector, VectorInfo
from atlas_engine.engine import Atlas
from tests.engines import tiny_engine

TASK_VECTORS = ("signs", "flowers", "garments")


def random_bank(base: Mapping[str, Tensor], *, seed: int = 0) -> TaskVectorBank:
    """Random vectors, each as long as a tenth of the weights, with what a real one says of itself."""
    draw = torch.Generator().manual_seed(seed)
    vectors = []
    for name in TASK_VECTORS:
        moved = {
            key: weight.detach() + 0.1 * _size(weight.detach()) * torch.randn(weight.shape, generator=draw)
            for key, weight in base.items()
        }
        info = VectorInfo(f"{name} set", 0.25, 0.75, provenance={"classes": "7"})
        vectors.append(TaskVector.between(name, base=base, tuned=moved, info=info))
    return TaskVectorBank.from_vectors(vectors)


def _size(weight: Tensor) -> Tensor:
    """The spread of a block, or how large its numbers are where all are the same, as in a new norm."""
    spread = weight.std().nan_to_num(0.1)
    return spread if spread > 0 else weight.square().mean().sqrt()


def engine_with_task_vectors(folder: Path, *, seed: int = 0) -> Atlas:
    """The small engine, with its bank in a file below `folder`."""
    backbone = tiny_engine().backbone
    path = folder / "bank.safetensors"
    save_bank(random_bank(dict(backbone.visual.named_parameters()), seed=seed), path)
    return Atlas(backbone, bank_path=path)
