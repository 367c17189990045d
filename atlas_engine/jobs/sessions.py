"""What a worker keeps between its tasks, and how banks travel."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from atlas_engine import engine
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import load_bank, save_bank
from atlas_engine.engine import Atlas
from atlas_engine.errors import ExecutorError

__all__ = ["bank_from_bytes", "bank_to_bytes", "open_session", "require_here"]


@functools.lru_cache(maxsize=1)
def open_session(model: str) -> Atlas:
    """The session with this model, which stays open for the tasks that follow; it keeps nothing on disk."""
    return engine.open(model, cache=False)


def require_here(path: str | Path) -> Path:
    """The path, if this machine has it."""
    if not Path(path).exists():
        raise ExecutorError(
            f"{path} is not on this machine. All machines of a run need the same files under the same paths, "
            "as in a folder that they share."
        )
    return Path(path)


def bank_to_bytes(bank: TaskVectorBank) -> bytes:
    """The bank as the bytes of its file."""
    with tempfile.TemporaryDirectory() as folder:
        save_bank(bank, Path(folder) / "bank.safetensors")
        return (Path(folder) / "bank.safetensors").read_bytes()


def bank_from_bytes(data: bytes) -> TaskVectorBank:
    """The bank in the bytes of a bank file, checked as any bank file is."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bank.safetensors"
        file.write_bytes(data)
        return load_bank(file)
