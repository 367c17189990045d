"""Every binary that ships is listed with its checksum, and the lists tell the truth."""

from __future__ import annotations

import hashlib

from tests.drawn import ROOT

ASSETS = ROOT / "assets"
TEXT = {".md", ".json", ".py", ".svg"}
MOST_BYTES = 60_000_000


def binaries():
    return [
        path for path in sorted(ASSETS.rglob("*")) if path.is_file() and path.suffix not in TEXT | {".pyc"}
    ]


def test_every_binary_is_listed_beside_its_sha256():
    listed = "\n".join(path.read_text(encoding="utf-8") for path in ASSETS.rglob("README.md"))
    for path in binaries():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        line = next((line for line in listed.splitlines() if digest in line), "")
        assert path.name in line, f"{path.relative_to(ROOT)} is not listed with sha256 {digest}"


def test_all_assets_together_stay_small():
    assert sum(path.stat().st_size for path in binaries()) < MOST_BYTES
