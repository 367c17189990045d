"""Adapted models that are ready to answer: built once for a recipe, and kept while they are used.

    predictors = Predictors()
    predictors.compare(engine, recipe, images)       # builds the recipe's model the first time

A model is kept by its recipe, so that an image that is dropped, or a frame of a camera, is answered without
composing the weights again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import atlas_engine as atlas
from app.limits import LIMITS

__all__ = ["Predictors"]

MAX_NUMBERS = 200_000_000  # weights of all models that are kept, 0.8 GB; one is kept whatever its size
MAX_KEPT = 12

Compare = Callable[[Sequence[atlas.Image]], atlas.Comparison]


@dataclass
class _Ready:
    """A recipe, which its key in the store is made of, and the function that answers by it."""

    engine: atlas.Atlas
    recipe: atlas.Recipe
    compare: Compare
    numbers: int  # weights of its image tower
    last_used: float = 0.0


class Predictors:
    """Models of recipes, the one that was not used for longest let go first. Threads may share it.

    What nobody used for `keep_seconds` goes at the next use of any: a recipe holds a visitor's class names.
    """

    def __init__(
        self,
        *,
        max_kept: int = MAX_KEPT,
        max_numbers: int = MAX_NUMBERS,
        keep_seconds: float = LIMITS.keep_seconds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_kept, self._max_numbers = max_kept, max_numbers
        self._keep_seconds, self._clock = keep_seconds, clock
        self._ready: OrderedDict[tuple[int, int], _Ready] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ready)

    def compare(
        self, engine: atlas.Atlas, recipe: atlas.Recipe, images: Sequence[atlas.Image]
    ) -> atlas.Comparison:
        """The images by zero-shot and by the recipe."""
        return self._of(engine, recipe).compare(images)

    def _of(self, engine: atlas.Atlas, recipe: atlas.Recipe) -> _Ready:
        key = (id(engine), id(recipe))  # both are kept with it, so that no other can have the same id
        with self._lock:
            found = self._ready.get(key)
            if found is None:
                numbers = sum(weight.numel() for weight in engine.backbone.visual.parameters())
                found = self._ready[key] = _Ready(engine, recipe, engine.comparer(recipe), numbers)
            found.last_used = self._clock()
            self._ready.move_to_end(key)
            while len(self._ready) > 1 and self._has_to_let_go():
                self._ready.popitem(last=False)
        return found

    def _has_to_let_go(self) -> bool:
        numbers = sum(one.numbers for one in self._ready.values())
        oldest = next(iter(self._ready.values()))
        expired = self._clock() - oldest.last_used > self._keep_seconds
        return expired or len(self._ready) > self._max_kept or numbers > self._max_numbers
