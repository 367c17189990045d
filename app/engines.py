"""The engines that are open, and which of them answers whom. Knows nothing of Gradio.

Each visitor chooses a model for themselves; nobody else notices. The engine that the server was started with
stays open. Of the others only a few do: the one that nobody has used for longest makes room, and its visitors
are asked to choose again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator

import atlas_engine as atlas
from app import model_text as text
from app.limits import LIMITS

__all__ = ["Answering", "Engines", "Prepare"]

Prepare = Callable[[str], Iterator[atlas.SetupProgress]]
Answering = Callable[[], atlas.Atlas]
"""Gives the engine of the present visitor. An event asks once, as it begins, and keeps to what it got: that
answers to the end, even when the model is put away or another is chosen meanwhile."""

ROOM = 2  # engines besides the first: each holds a model and its bank in memory


class Engines:
    """Open engines by the name that visitors chose them by, and each visitor's choice."""

    def __init__(
        self, first: atlas.Atlas, *, name: str, prepare: Prepare | None = None, room: int = ROOM
    ) -> None:
        self.first, self.first_name = first, name
        self.prepare = prepare or _sharing_cache(first)  # how one that is not open is made ready
        self._room = room
        self._open: OrderedDict[str, atlas.Atlas] = OrderedDict()  # the one used last stands last
        self._chosen: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, session: str | None) -> atlas.Atlas:
        """The engine that a visitor chose, or the first."""
        with self._lock:
            name = self._chosen.get(session or "", self.first_name)
            if session is not None and session in self._chosen:
                self._chosen.move_to_end(session)
            if name == self.first_name:
                return self.first
            if name not in self._open:
                raise atlas.AtlasError(text.put_away(name))
            self._open.move_to_end(name)
            return self._open[name]

    def name_of(self, session: str | None) -> str:
        """The name that a visitor chose."""
        with self._lock:
            return self._chosen.get(session or "", self.first_name)

    def find(self, name: str) -> atlas.Atlas | None:
        """The engine called so, if it is open."""
        with self._lock:
            return self.first if name == self.first_name else self._open.get(name)

    def choose(self, session: str, name: str, engine: atlas.Atlas) -> None:
        """Let `engine` answer this visitor from now on.

        An engine that has to make room is let go of, not closed: whoever is in the middle of an answer
        finishes it.
        """
        with self._lock:
            if name != self.first_name:
                self._open[name] = engine
                self._open.move_to_end(name)
            self._chosen[session] = name
            self._chosen.move_to_end(session)
            while len(self._open) > self._room:
                self._open.popitem(last=False)
            while len(self._chosen) > LIMITS.choices:
                self._chosen.popitem(last=False)

    def answering(self, session: Callable[[], str | None]) -> Answering:
        """What the tabs get the present visitor's engine from.

        `session` tells who that is; outside of any event it is nobody, and the first engine answers.
        """
        return lambda: self.of(session())


def _sharing_cache(first: atlas.Atlas) -> Prepare:
    """All engines share one cache, so that letting go of one needs no closing."""
    return lambda name: atlas.prepare(name, cache=False if first.cache is None else first.cache)
