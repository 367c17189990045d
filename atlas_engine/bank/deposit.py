"""A bank file with one more vector, or with a newer one of the same name. Knows nothing of training.

    require_place("bank.safetensors", base=print0, blocks=table)     # before an hour of work, not after it
    deposit(vector, "bank.safetensors")

The vectors that are there are not touched: their stored bits are copied, never decoded and stored again, so
a bank in int4 or low rank may grow one vector at a time without wearing out.
"""

from __future__ import annotations

from pathlib import Path

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import BlockTable
from atlas_engine.bank.join import joined
from atlas_engine.bank.store import BankFile, load_bank, save_bank
from atlas_engine.bank.vector import TaskVector
from atlas_engine.errors import BankError

__all__ = ["deposit", "require_place", "with_vector"]


def require_place(path: Path, *, base: str, blocks: BlockTable) -> None:
    """Raise unless a vector of this base can be added to the file, or a new file be made in that folder."""
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


def deposit(vector: TaskVector, path: Path, *, storage: str = "float32") -> None:
    """Add a vector to the file, which is replaced whole or not at all; a new one is made in `storage`."""
    if path.exists():
        bank = with_vector(load_bank(path), vector)
    else:
        bank = TaskVectorBank.from_vectors([vector], storage=storage)
    save_bank(bank, path)


def with_vector(bank: TaskVectorBank, vector: TaskVector) -> TaskVectorBank:
    """The bank with `vector` in its own storage: in the place of the one so called, else at the end."""
    fresh = TaskVectorBank.from_vectors([vector], storage=bank.storage, device=bank.device)
    others = [task for task in bank.tasks if task != vector.name]
    grown = joined([bank.select(others), fresh]) if others else joined([fresh])
    return grown.select(bank.tasks if vector.name in bank.tasks else (*bank.tasks, vector.name))
