"""`processes`: tasks side by side in processes of this machine.

A worker reads a task's message from stdin and writes the reply to where its stdout was. What tasks print goes
to stderr. A worker that dies, for want of memory for instance, costs only its task, which another one carries
out again; a task that has cost `ATTEMPTS` workers is given up.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from typing_extensions import override

from atlas_engine.errors import ExecutorError
from atlas_engine.executors.task import Executor, pack_error, perform

__all__ = ["ProcessesExecutor", "work"]

ATTEMPTS = 3
_LENGTH_NBYTES = 8


class _Work(NamedTuple):
    """A message on its way: its position, itself, and how often a worker has died over it."""

    position: int
    message: bytes
    deaths: int = 0


@dataclass(eq=False)
class _Worker:
    """A process, and what it works on."""

    process: subprocess.Popen[bytes]
    work: _Work | None = None

    def begin(self, work: _Work) -> None:
        """Send the message; a worker that is dead already is noticed when its reply is read."""
        self.work = work
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            _write(self.process.stdin, work.message)

    def reply(self) -> bytes | None:
        """The reply, waited for; None if the worker has died."""
        assert self.process.stdout is not None
        return _read(self.process.stdout)

    def stop(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what was written last was never read
                    pipe.close()


Following = Callable[[], "_Work | None"]
"""Takes what is to be done next; None if there is nothing more."""


class ProcessesExecutor(Executor):
    """So many workers, started when there is something to do and kept until the end."""

    name = "processes"

    def __init__(self, *, threads: int | None = None, count: int | None = None) -> None:
        super().__init__(threads or 1)
        self.count = count or max(1, len(_cores()) // (threads or 1))
        self._workers: list[_Worker] = []

    @override
    def run(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        waiting = enumerate(messages)
        again: list[_Work] = []  # of workers that died

        def following() -> _Work | None:
            if again:
                return again.pop()
            found = next(waiting, None)
            return None if found is None else _Work(*found)

        try:
            with selectors.DefaultSelector() as selector:
                self._fill(selector, following)
                while selector.get_map():
                    replies = []
                    for key, _ in selector.select():
                        worker: _Worker = key.data
                        work, reply = worker.work, worker.reply()
                        selector.unregister(key.fileobj)
                        assert work is not None
                        worker.work = None
                        if reply is None:
                            self._workers.remove(worker)
                            worker.stop()
                            work = work._replace(deaths=work.deaths + 1)
                            if work.deaths < ATTEMPTS:
                                again.append(work)
                                continue
                            reply = pack_error(_given_up(worker.process.returncode))
                        replies.append((work.position, reply))
                    self._fill(selector, following)  # first, for the caller may take a while
                    yield from replies
        finally:
            # closed before its end: what is under way is stopped
            for worker in [one for one in self._workers if one.work is not None]:
                self._workers.remove(worker)
                worker.stop()

    def _fill(self, selector: selectors.BaseSelector, following: Following) -> None:
        """Give every idle worker something to do, and start workers while there are too few."""
        while True:
            idle = next((worker for worker in self._workers if worker.work is None), None)
            if idle is None and len(self._workers) >= self.count:
                return
            work = following()
            if work is None:
                return
            if idle is None:
                idle = _Worker(_start())
                self._workers.append(idle)
            idle.begin(work)
            assert idle.process.stdout is not None
            selector.register(idle.process.stdout, selectors.EVENT_READ, idle)

    @override
    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers = []


def _given_up(code: int | None) -> ExecutorError:
    return ExecutorError(
        f"{ATTEMPTS} processes died over this task, the last with code {code}: perhaps for want of memory. "
        "Take fewer at a time, as in --on processes:1."
    )


def _cores() -> Sequence[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return range(os.cpu_count() or 1)


def _start() -> subprocess.Popen[bytes]:
    """A worker that imports what this process would, in a session of its own: Ctrl-C is not for it."""
    paths = [str(Path(path).resolve()) for path in sys.path]
    return subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import work; work()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,
    )


def _write(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_LENGTH_NBYTES, "little"))
    pipe.write(message)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    """A whole message; None if the other side is gone."""
    length = pipe.read(_LENGTH_NBYTES)
    if len(length) < _LENGTH_NBYTES:
        return None
    nbytes = int.from_bytes(length, "little")
    message = pipe.read(nbytes)
    return message if len(message) == nbytes else None


def work() -> None:
    """Carry out what comes from stdin, until it is closed: all that a worker does."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a task prints is talk, not data
    while (message := _read(sys.stdin.buffer)) is not None:
        _write(replies, perform(message))
