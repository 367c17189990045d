"""Which bank file on this machine is a model's own. Knows nothing of models.

    find_bank(dict(backbone.visual.named_parameters()))        # a path, or None

Which one it is, is decided by the bank itself, which names the weights that it was taken from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from atlas_engine.bank.store import BankFile
from atlas_engine.bank.vector import fingerprint
from atlas_engine.config import assets_folder, cache_folder
from atlas_engine.errors import BankError

__all__ = ["banks_folder", "find_bank"]


def banks_folder() -> Path:
    """Where a public bank is kept that was imported without naming a file."""
    return cache_folder() / "banks"


def find_bank(weights: Mapping[str, Tensor]) -> Path | None:
    """The bank that was made for these weights: one that ships, else one that was built."""
    base = fingerprint(weights)
    for folder in (assets_folder() / "bank", banks_folder()):
        for path in sorted(folder.glob("*.safetensors")):
            if _base_of(path) == base:
                return path
    return None


def _base_of(path: Path) -> str | None:
    """Which weights a bank file belongs to; None for a file that is no bank."""
    try:
        with BankFile(path) as file:
            return file.base
    except (BankError, OSError):
        return None
