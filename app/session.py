"""What the server holds for visitors: the open engines, each visitor's choice of one, and the runs under way.

    opened = open_engine()                       # the model that the server starts with
    engines = Engines(opened.engine, name=opened.name)
    engines.engine_of("ann")                     # the engine that answers Ann

    runs = Runs()
    with runs.begin("ann") as stop_signal:       # while Ann's run lasts,
        for step in stop_signal.follow(run):     # runs.stop("ann") ends it, and no other
            ...

A visitor's finished result lives in Gradio's session state (`handlers.few_shot.SavedResult`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import atlas_engine as atlas
from app import text
from app.limits import LIMITS
from app.priority_lock import DEVICE

__all__ = [
    "BUNDLED",
    "CurrentModel",
    "Engines",
    "OpenedModel",
    "PageRuns",
    "Prepare",
    "Runs",
    "StopSignal",
    "StoppedEarlyError",
    "open_engine",
]

BUNDLED = "bundled"
MAX_OPEN = 2  # engines besides the first: each holds a model and its bank in memory

Prepare = Callable[[str], Iterator[atlas.SetupProgress]]

_log = logging.getLogger(__name__)


# ---- the model that the server starts with


@dataclass(frozen=True)
class OpenedModel:
    """An engine, and why it is not the one that was chosen, if it is not."""

    engine: atlas.Atlas
    reason: str | None = None
    own_bank: bool = True  # the bank that ships with the model
    name: str = BUNDLED
    replicas: int = 0  # that compute for it, each for one lesson at a time (`app.replicas`); 0: this process


def open_engine(
    model: str | None = None,
    *,
    bank: str | None = None,
    device: str | None = None,
    log: Callable[[str], object] = _log.info,
) -> OpenedModel:
    """The chosen model (`model`, else ATLAS_MODEL), or the bundled one and why the chosen one is not open.

    `bank` (else ATLAS_BANK) is a bank file for that model; without one it is the model's own, built from
    public checkpoints where there are some. `log` gets a line for each step of that.

    The engine keeps no image and no class name on the disk: they are a visitor's own. Models that were
    fetched, and the banks built of them, stay there.
    """
    chosen = model or os.environ.get("ATLAS_MODEL") or BUNDLED
    bank_file = bank or os.environ.get("ATLAS_BANK") or None
    shipped = chosen == BUNDLED and bank_file is None
    try:
        for step in atlas.prepare(chosen, bank=bank_file, device=device, cache=False):
            if step.phase == "bank":
                log(text.model.building(step.index, step.of, step.vector))
    except atlas.AtlasError as error:
        if shipped:
            raise
        return OpenedModel(atlas.open(BUNDLED, device=device, cache=False), reason=str(error))
    assert step.engine is not None  # the last step of a preparation has it
    return OpenedModel(step.engine, own_bank=shipped, name=_without_folder(chosen))


def _without_folder(model: str) -> str:
    """A model's name without the folder of its file, which no visitor needs to know.

    >>> _without_folder("ViT-B-32@weights/mine.pt")
    'ViT-B-32@mine.pt'
    """
    arch, at, path = model.partition("@")
    return arch + at + Path(path).name


# ---- which engine answers whom


class Engines:
    """Open engines by the name that visitors chose them by, and each visitor's choice.

    The engine that the server was started with stays open. Of the others at most `max_open` do: the one that
    nobody has used for longest is let go, and its visitors are asked to choose again.
    """

    def __init__(
        self,
        first: atlas.Atlas,
        *,
        name: str,
        prepare: Prepare | None = None,
        max_open: int = MAX_OPEN,
        offered_only: bool = False,
    ) -> None:
        self.first, self.first_name = first, name
        self.offered_only = offered_only  # whether visitors choose from the list alone, as on a public host
        self.prepare = prepare or _prepare_with_cache_of(first)  # how one that is not open is made ready
        self._max_open = max_open
        self._open: OrderedDict[str, atlas.Atlas] = OrderedDict()  # the one used last stands last
        self._chosen: OrderedDict[str, str] = OrderedDict()  # names by session
        self._lock = threading.Lock()

    def engine_of(self, session: str | None) -> atlas.Atlas:
        """The engine that a visitor chose, or the first; an AtlasError where it was let go."""
        with self._lock:
            name = self._chosen.get(session or "", self.first_name)
            if session is not None and session in self._chosen:
                self._chosen.move_to_end(session)
            if name == self.first_name:
                return self.first
            if name not in self._open:
                raise atlas.AtlasError(text.model.closed(name))
            self._open.move_to_end(name)
            return self._open[name]

    def name_of(self, session: str | None) -> str:
        """The name that a visitor chose, or the first's."""
        with self._lock:
            return self._chosen.get(session or "", self.first_name)

    def find(self, name: str) -> atlas.Atlas | None:
        """The engine of that name, if it is open."""
        with self._lock:
            return self.first if name == self.first_name else self._open.get(name)

    def choose(self, session: str, name: str, engine: atlas.Atlas) -> None:
        """Let `engine` answer this visitor from now on.

        An engine that has to make room is let go, not closed: whoever is in the middle of an answer
        finishes it.
        """
        with self._lock:
            if name != self.first_name:
                self._open[name] = engine
                self._open.move_to_end(name)
            self._chosen[session] = name
            self._chosen.move_to_end(session)
            while len(self._open) > self._max_open:
                self._open.popitem(last=False)
            while len(self._chosen) > LIMITS.model_choices:
                self._chosen.popitem(last=False)


@dataclass(frozen=True)
class CurrentModel:
    """The model of the visitor whose event is running; outside of any event, the first.

    An event asks for the engine once, as it begins, and keeps to it: that engine answers to the end, even
    when it is let go or another is chosen meanwhile.
    """

    engines: Engines
    session: Callable[[], str | None]

    def engine(self) -> atlas.Atlas:
        """The visitor's engine; an AtlasError where it was let go."""
        return self.engines.engine_of(self.session())

    def name(self) -> str:
        """The name that the visitor chose it by."""
        return self.engines.name_of(self.session())


def _prepare_with_cache_of(first: atlas.Atlas) -> Prepare:
    """All engines share one cache, so that an engine which is let go needs no closing."""
    return lambda name: atlas.prepare(name, cache=False if first.cache is None else first.cache)


# ---- runs under way, and how they are stopped


class StoppedEarlyError(atlas.AtlasError):
    """The visitor has stopped a run that has nothing to keep yet."""


class StopSignal:
    """A visitor's wish that the work ends. It may come from another thread, and before there is a run.

    With a `file` it may come from another process too: the signal is set as soon as the file is not empty.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._set = threading.Event()
        self._file = file
        self._run: atlas.Run[atlas.AdaptResult] | None = None

    @property
    def is_set(self) -> bool:
        """Whether the work should end."""
        return self._set.is_set() or (self._file is not None and _is_marked(self._file))

    def set(self) -> None:
        """Ask that nothing new is begun, and that the run ends with what it has."""
        self._set.set()
        if self._run is not None:
            self._run.cancel()

    def follow(self, run: atlas.Run[atlas.AdaptResult]) -> Iterator[atlas.Step]:
        """The steps of a run, which the signal cancels: at once, or from another process after a step.

        Between two passes of the model the run gives the device to those who wait for it.
        """
        self._run = run
        run.call_between_passes(DEVICE.give_way)
        if self.is_set:
            run.cancel()
        for step in run:
            yield step
            if self.is_set:
                run.cancel()

    def raise_if_set(self) -> None:
        """Raise an AtlasError if it is set, for work that has nothing to keep yet."""
        if self.is_set:
            raise StoppedEarlyError(text.page.STOPPED_EARLY)


class Runs:
    """The stop signals of the runs under way, by session.

    Each run has a file for as long as it lasts, in a folder that is there before any process is forked, so
    that a stop reaches a run in a fork. The file is empty until the run should end, and its name does not
    tell the session. There is no lock, which a fork could find locked for ever.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="atlas-runs-"))
        self._signals: dict[str, StopSignal] = {}  # by the file's name; those of this process alone
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    @contextmanager
    def begin(self, session: str | None) -> Iterator[StopSignal]:
        """A signal that `stop(session)` sets, while the block lasts; without a session, nothing sets it."""
        if session is None:
            yield StopSignal()
            return
        file = self._folder / f"{_session_key(session)}-{secrets.token_hex(8)}"
        self._folder.mkdir(mode=0o700, exist_ok=True)  # a sweep of temporary folders may have taken it
        file.touch()
        self._signals[file.name] = stop_signal = StopSignal(file)
        try:
            yield stop_signal
        finally:
            self._signals.pop(file.name, None)
            file.unlink(missing_ok=True)

    def stop(self, session: str | None) -> bool:
        """Ask the session's run to end with what it has; False when there is none."""
        files = [] if session is None else list(self._folder.glob(f"{_session_key(session)}-*"))
        for file in files:
            _mark(file)
            stop_signal = self._signals.get(file.name)
            if stop_signal is not None:
                stop_signal.set()
        return bool(files)

    def stop_all(self) -> int:
        """Ask every run to end with what it has; returns how many there are."""
        try:
            files = list(self._folder.iterdir())
        except FileNotFoundError:
            return 0
        for file in files:
            _mark(file)
            if file.name in self._signals:
                self._signals[file.name].set()
        return len(files)


@dataclass(frozen=True)
class PageRuns:
    """The runs of a page: those that learn or answer, and those that fetch a model, which may go beside."""

    learning: Runs = field(default_factory=Runs)
    fetching: Runs = field(default_factory=Runs)

    def stop_all(self) -> int:
        """Ask all of them to end; returns how many there are."""
        return self.learning.stop_all() + self.fetching.stop_all()


def _mark(file: Path) -> None:
    with suppress(FileNotFoundError), file.open("r+b") as opened:  # the run may end in this moment
        opened.write(b".")


def _is_marked(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return True  # swept away; nobody could set the signal any more


def _session_key(session: str) -> str:
    return hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:32]
