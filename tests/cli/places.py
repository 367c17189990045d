"""What the tests of commands share: sets of images and a bank on disk, and what a refusal looks like."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from atlas_engine.bank.bank_file import save_bank
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

BANK = "bank.safetensors"


def write_places(root: Path, sets: Mapping[str, Mapping[str, int]], **bank: float) -> Path:
    """Sets of images by their paths below `root`, and a bank beside them."""
    for place, counts in sets.items():
        write_pictures(root / place, dict(counts))
    save_bank(tiny_bank(tiny_engine().backbone.visual, **bank), root / BANK)
    return root


def require_refusal(result: tuple[int, str, str], code: int, sentence: str) -> None:
    """The command told nothing, and said one line with this sentence in it."""
    found, told, said = result
    assert (found, told) == (code, "")
    assert sentence in said
    assert said.count("\n") == 1
