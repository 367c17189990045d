"""What the server holds for visitors: a finished adaptation each, and the runs under way. CPU values only.

A session's `Kept` lives in Gradio's state, which is deep-copied and has a time to live. Stop signs are found
by session, so that Stop and a closed page end a visitor's own run and no other. Knows nothing of Gradio.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import atlas_engine as atlas
from app import text
from app.handlers.choices import Choices, RollChoices
from app.handlers.lesson import Shown

__all__ = ["Kept", "Runs", "StopSign"]


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


class StopSign:
    """A visitor's wish that the work ends. It may come from another thread, and before there is a run."""

    def __init__(self) -> None:
        self._up = threading.Event()
        self._run: atlas.Run[atlas.AdaptResult] | None = None

    @property
    def is_up(self) -> bool:
        """Whether the work should end."""
        return self._up.is_set()

    def put_up(self) -> None:
        """From here on nothing new is begun, and the run ends with what it has."""
        self._up.set()
        if self._run is not None:
            self._run.cancel()

    def heeded_by(self, run: atlas.Run[atlas.AdaptResult]) -> None:
        """Let the sign end this run."""
        self._run = run
        if self.is_up:
            run.cancel()

    def heed(self) -> None:
        """Raise an AtlasError if it is up, for work that has nothing to keep yet."""
        if self.is_up:
            raise atlas.AtlasError(text.STOPPED_EARLY)


class Runs:
    """The stop signs of the runs under way, by session."""

    def __init__(self) -> None:
        self._signs: dict[str, StopSign] = {}
        self._lock = threading.Lock()

    @contextmanager
    def sign(self, session: str | None) -> Iterator[StopSign]:
        """A sign that `stop(session)` puts up, for as long as the block lasts; nobody's is never put up."""
        sign = StopSign()
        with self._lock:
            if session is not None:
                self._signs[session] = sign
        try:
            yield sign
        finally:
            with self._lock:
                if self._signs.get(session or "") is sign:
                    del self._signs[session or ""]

    def stop(self, session: str | None) -> bool:
        """Ask the session's run to end with what it has; False when there is none."""
        with self._lock:
            sign = self._signs.get(session or "")
        if sign is not None:
            sign.put_up()
        return sign is not None
