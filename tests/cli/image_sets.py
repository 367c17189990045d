"""What the tests of commands share: image sets and a bank on disk, and what a refusal looks like."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from atlas_engine.bank.bank_file import save_bank
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

BANK = "bank.safetensors"


def write_image_sets(root: Path, sets: Mapping[str, Mapping[str, int]], **bank: float) -> Path:
    """Write image sets, by their paths below `root`, and a bank beside them; return `root`."""
    for path, counts in sets.items():
        write_pictures(root / path, dict(counts))
    save_bank(tiny_bank(tiny_engine().backbone.visual, **bank), root / BANK)
    return root


def require_refusal(printed: tuple[int, str, str], code: int, sentence: str) -> None:
    """The command printed nothing on stdout, and one line with this sentence in it on stderr."""
    found, out, err = printed
    assert (found, out) == (code, "")
    assert sentence in err
    assert err.count("\n") == 1
