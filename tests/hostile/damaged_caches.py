"""Damaged cache folders, drawn by a seed: bytes flipped, parts cut, swapped or zeroed, a log of rubbish."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from pathlib import Path

from atlas_engine.cache import Cache

ENTRIES = 20


def fill(folder: Path) -> None:
    with Cache(folder) as cache:
        for index in range(ENTRIES):
            cache.put_bytes(f"key {index}", value_of(index))


def value_of(index: int) -> bytes:
    return bytes([index]) * 1500


def damage(source: Path, folder: Path, seed: int) -> str:
    """Copy a sound cache folder and damage the copy; says how."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    database, draw = folder / "cache.db", random.Random(seed)
    raw = bytearray(database.read_bytes())
    how = draw.choice(("flip anywhere", "flip tables", "flip texts", "cut", "swap", "zero", "log", "grow"))
    if how.startswith("flip"):
        places = texts_in(raw) if how == "flip texts" else range(8192 if how == "flip tables" else len(raw))
        for place in draw.choices(places, k=draw.choice((1, 2, 8, 40))):
            raw[place] ^= draw.choice((0x01, 0x20, 0x55, 0x80, 0xFF))
    elif how == "cut":
        del raw[draw.randrange(len(raw)) :]
    elif how == "swap":
        one, other = (4096 * draw.randrange(len(raw) // 4096) for _ in range(2))
        raw[one : one + 4096], raw[other : other + 4096] = raw[other : other + 4096], raw[one : one + 4096]
    elif how == "zero":
        start = draw.randrange(len(raw))
        stop = min(len(raw), start + draw.choice((1, 100, 4096)))
        raw[start:stop] = bytes(stop - start)
    elif how == "grow":
        raw += draw.randbytes(draw.choice((1, 4096)))
    else:
        (folder / "cache.db-wal").write_bytes(draw.choice((b"", raw[:32])) + draw.randbytes(9000))
        (folder / "cache.db-shm").write_bytes(draw.randbytes(32_768))
    database.write_bytes(raw)
    return how


def texts_in(raw: bytearray) -> list[int]:
    """The places of the names of settings, tables and columns: damage there reads as something else."""
    words = (
        b"size",
        b"count",
        b"sqlite_",
        b"disk_",
        b"CREATE",
        b"Cache",
        b"Settings",
        b"least-",
        b"wal",
        b"key ",
    )
    places = []
    for word in words:
        start = raw.find(word)
        while start >= 0:
            places += range(start - 4, start + len(word) + 4)
            start = raw.find(word, start + 1)
    return [place for place in places if 0 <= place < len(raw)]


def use(folder: Path) -> None:
    """Do with a cache all that the library does; raises if it raises, or if an answer is wrong."""
    with Cache(folder) as cache:
        for index in range(ENTRIES):
            assert cache.get_bytes(f"key {index}") in (None, value_of(index))
            assert cache.get_tensor(f"tensor {index}") is None
        cache.put_bytes("new", b"value")
        assert cache.get_bytes("new") in (None, b"value")  # None if that write met the damage
        assert cache.nbytes >= 0
        assert len(cache) >= 0
        assert repr(cache)
        cache.clear()
    with Cache(folder) as cache:  # what is left serves on
        cache.put_bytes("new", b"value")
        assert cache.get_bytes("new") == b"value"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        sound, damaged = Path(name, "sound"), Path(name, "damaged")
        fill(sound)
        for seed in range(int(sys.argv[1])):
            damage(sound, damaged, seed)
            use(damaged)
