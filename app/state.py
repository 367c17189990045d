"""What the server holds for visitors: a finished adaptation each, and the runs under way. CPU values only.

A session's `Kept` lives in Gradio's state, which is deep-copied and has a time to live. Runs are found by
session, so that Stop and a closed page end a visitor's own run and no other. Knows nothing of Gradio.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import atlas_engine as atlas
from app.handlers.choices import Choices, RollChoices
from app.handlers.lesson import Shown

__all__ = ["Kept", "Runs"]


@dataclass(frozen=True, eq=False)
class Kept:
    """A recipe and its story, the samples it was tried on, and what came of it."""

    recipe: atlas.Recipe
    sentence: str
    choices: Choices | RollChoices | None = None  # None for a recipe that was brought along
    helped: bool | None = None
    estimates: tuple[atlas.Estimate, ...] = ()
    losses: tuple[float, ...] = ()
    seconds: float = 0.0
    stopped: bool = False
    samples: tuple[Shown, ...] = ()
    comparison: atlas.Comparison | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Kept:
        return self  # nothing in it is ever written to

    @property
    def truth(self) -> tuple[str | None, ...]:
        """The class of each sample, where it is known."""
        return tuple(sample.truth for sample in self.samples)


class Runs:
    """The runs under way, by session."""

    def __init__(self) -> None:
        self._runs: dict[str, atlas.Run[atlas.AdaptResult]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def holding(self, session: str, run: atlas.Run[atlas.AdaptResult]) -> Iterator[None]:
        """Let `stop(session)` find the run for as long as the block lasts."""
        with self._lock:
            self._runs[session] = run
        try:
            yield
        finally:
            with self._lock:
                if self._runs.get(session) is run:
                    del self._runs[session]

    def stop(self, session: str | None) -> bool:
        """Ask the session's run to end with what it has; False when there is none."""
        with self._lock:
            run = self._runs.get(session or "")
        if run is not None:
            run.cancel()
        return run is not None
