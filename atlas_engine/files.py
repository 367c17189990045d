"""Files that appear whole or not at all. Knows nothing of what is in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing"]


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """A path beside ``path`` to write to; it takes its place at the end, or vanishes on an error.

    with replacing("weights.safetensors") as part:
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
