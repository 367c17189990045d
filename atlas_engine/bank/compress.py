"""A bank in fewer bytes, and what that costs in accuracy of its vectors. Knows nothing of files.

small = compress(bank, "int8")
fidelity(bank, small)["cars"].cosine       # 0.99996
"""

from __future__ import annotations

from dataclasses import dataclass

from atlas_engine.bank.bank import TaskVectorBank

__all__ = ["Fidelity", "compress", "fidelity"]


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
