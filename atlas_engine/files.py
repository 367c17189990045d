"""Files and folders that appear whole or not at all, their sizes and their hashes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_folder", "atomic_write", "human_nbytes", "sha256_of"]


@contextmanager
def atomic_write(path: Path | str) -> Iterator[Path]:
    """A temporary path to write to, in the folder of `path`; it replaces `path` at the end.

    After an error the temporary file is deleted, and `path` is as it was.

        with atomic_write("weights.safetensors") as part:
            part.write_bytes(data)
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path | str) -> Iterator[Path]:
    """A temporary folder to fill, beside `path`; it becomes `path` at the end, which must be new or empty.

    After an error the temporary folder is deleted.
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        yield part
        part.replace(target)  # takes the place of an empty folder, and fails where it is not empty
    finally:
        shutil.rmtree(part, ignore_errors=True)


def human_nbytes(nbytes: int) -> str:
    """A number of bytes in the unit that reads best.

    >>> human_nbytes(512), human_nbytes(1_572_864)
    ('512 B', '1.5 MiB')
    """
    for unit, unit_nbytes in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= unit_nbytes:
            return f"{nbytes / unit_nbytes:.1f} {unit}"
    return f"{nbytes} B"


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hex, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
