"""What a piece of work comes to, when its steps are of no interest. Knows nothing of the work."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

__all__ = ["ended"]

Found = TypeVar("Found")


def ended(steps: Generator[object, None, Found]) -> Found:
    """What the generator returns, after all the steps that are left."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found
