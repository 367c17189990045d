"""What the server holds for visitors: a finished adaptation each, and the runs under way. CPU values only.

A session's `SavedResult` lives in Gradio's state, which is deep-copied and has a time to live. Stop
signs are found by session, so that Stop and a closed page end a visitor's own run and no other;
also where the run is in a process that was forked for it. Knows nothing of Gradio.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import atlas_engine as atlas
from app import text
from app.handlers.choices import Choices, RollChoices
from app.handlers.lesson import LabelledImage

__all__ = ["Runs", "SavedResult", "StopSign"]


@dataclass(frozen=True, eq=False)
class SavedResult:
    """A recipe and its story, the samples it was tried on, and what came of it."""

    recipe: atlas.Recipe
    sentence: str
    choices: Choices | RollChoices | None = None  # None for a recipe that was brought along
    helped: bool | None = None
    estimates: tuple[atlas.Estimate, ...] = ()
    losses: tuple[float, ...] = ()
    seconds: float = 0.0
    stopped: bool = False
    samples: tuple[LabelledImage, ...] = ()
    comparison: atlas.Comparison | None = None
    example: bool = False  # whether it ships with the page

    def __deepcopy__(self, memo: dict[int, Any]) -> SavedResult:
        return self  # nothing in it is ever written to

    @property
    def truth(self) -> tuple[str | None, ...]:
        """The class of each sample, where it is known."""
        return tuple(sample.truth for sample in self.samples)


class StopSign:
    """A visitor's wish that the work ends. It may come from another thread, and before there is a run.

    With a `file` it may come from another process too: the sign is up as soon as the file is not empty.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._up = threading.Event()
        self._file = file
        self._run: atlas.Run[atlas.AdaptResult] | None = None

    @property
    def is_up(self) -> bool:
        """Whether the work should end."""
        return self._up.is_set() or (self._file is not None and _is_marked(self._file))

    def put_up(self) -> None:
        """From here on nothing new is begun, and the run ends with what it has."""
        self._up.set()
        if self._run is not None:
            self._run.cancel()

    def over(self, run: atlas.Run[atlas.AdaptResult]) -> Iterator[atlas.Step]:
        """The steps of a run, which the sign ends: at once from this process, after a step from another."""
        self._run = run
        if self.is_up:
            run.cancel()
        for step in run:
            yield step
            if self.is_up:
                run.cancel()

    def heed(self) -> None:
        """Raise an AtlasError if it is up, for work that has nothing to keep yet."""
        if self.is_up:
            raise atlas.AtlasError(text.STOPPED_EARLY)


class Runs:
    """The stop signs of the runs under way, by session.

    Each run has a file for as long as it lasts, in a folder that is there before any process is forked. The
    file is empty until the run should end, and its name tells nobody's session. There is no lock, which a
    fork could find locked for ever.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="atlas-runs-"))
        self._signs: dict[str, StopSign] = {}  # by the file's name; those of this process alone
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    @contextmanager
    def sign(self, session: str | None) -> Iterator[StopSign]:
        """A sign that `stop(session)` puts up, for as long as the block lasts; nobody's is never put up."""
        if session is None:
            yield StopSign()
            return
        file = self._folder / f"{_key(session)}-{secrets.token_hex(8)}"
        self._folder.mkdir(mode=0o700, exist_ok=True)  # who sweeps temporary folders may have taken it
        file.touch()
        self._signs[file.name] = sign = StopSign(file)
        try:
            yield sign
        finally:
            self._signs.pop(file.name, None)
            file.unlink(missing_ok=True)

    def stop(self, session: str | None) -> bool:
        """Ask the session's run to end with what it has; False when there is none."""
        files = [] if session is None else list(self._folder.glob(f"{_key(session)}-*"))
        for file in files:
            _mark(file)
            sign = self._signs.get(file.name)
            if sign is not None:
                sign.put_up()
        return bool(files)


def _mark(file: Path) -> None:
    with suppress(FileNotFoundError), file.open("r+b") as opened:  # the run may end in this moment
        opened.write(b".")


def _is_marked(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return True  # swept away; whoever could have put the sign up cannot any more


def _key(session: str) -> str:
    return hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:32]
