"""How far a long command has come, on stderr; and runs that Ctrl-C ends without losing what was learned.

    with ProgressBar(len(images), "reading") as progress:
        for image in images:
            ...
            progress.advance()

On a terminal tqdm redraws one line and wipes it at the end; elsewhere (a log, a pipe) a line is written every
ten seconds. Work that ends before the first drawing leaves no trace.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from atlas_engine.cli.output import say
from atlas_engine.files import human_nbytes
from atlas_engine.views.tables import printable

if TYPE_CHECKING:
    from atlas_engine.executors import Done, Executor, Ledger, Task
    from atlas_engine.result import AdaptResult, Run

__all__ = ["ProgressBar", "run_with_bar", "run_with_progress", "say_fetching"]

REDRAW_SECONDS = 0.1
LOG_SECONDS = 10.0
LOG_LINE = "{desc}: {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"


class ProgressBar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """A tqdm bar on stderr; `n` counts what is done, `total` (or None) what there is: things or bytes."""

    monitor_interval = 0  # no thread that watches over the bar

    def __init__(self, total: int | None, label: str, *, in_bytes: bool = False) -> None:
        self._redraws = sys.stderr.isatty()
        seconds = REDRAW_SECONDS if self._redraws else LOG_SECONDS
        super().__init__(
            desc=printable(label),
            total=total,
            leave=False,
            file=sys.stderr,
            mininterval=seconds,
            delay=seconds,
            miniters=0,  # a note alone may be drawn too
            dynamic_ncols=self._redraws,
            bar_format=None if self._redraws or total is None else LOG_LINE,
            unit="B" if in_bytes else "it",
            unit_scale=in_bytes,
            unit_divisor=1024,
        )

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count on, and redraw if it is time; `note` is shown behind the rest (a loss, a file name)."""
        self.set_postfix_str(printable(note), refresh=False)
        self.update(count)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Redraw the line of a terminal, or add one to a log, where there is nothing to wipe (`msg=""`)."""
        if self._redraws:
            return bool(super().display(msg, pos))
        if msg is None:
            self.fp.write(f"{self}\n")
        return False


def run_with_bar(
    tasks: Iterable[Task], total: int, label: str, *, executor: Executor, ledger: Ledger
) -> Iterator[Done]:
    """`run_tasks` under a bar; what was done before took no time, so it does not count for the time left."""
    from atlas_engine.executors import run_tasks

    with ProgressBar(total, label) as progress:

        def count(task: Task) -> None:
            progress.advance(note=task.note)

        for done in run_tasks(tasks, executor=executor, ledger=ledger, on_end=count):
            if not done.fresh:
                progress.total -= 1
            yield done


def say_fetching(nbytes: int) -> None:
    """Say how much the hub is about to send, before it starts."""
    say(f"fetching {human_nbytes(nbytes)} from the model hub, once.")


def run_with_progress(run: Run[AdaptResult], *, output: Path | None = None) -> AdaptResult:
    """The run's result, its recipe written to `output` before anything else is done with it.

    The first Ctrl-C ends the run where it stands and keeps the best so far; a second one ends the command.
    """
    with ProgressBar(100, "adapting (% of the work)") as progress, _ctrl_c_cancels(run):
        for step in run:
            loss = f", loss {step.loss:.3f}" if step.phase == "learn" else ""
            done = int(100 * (step.share or 0.0))
            progress.advance(done - progress.n, f"{step.phase} {step.index + 1} of {step.of}{loss}")
        result = run.result()
        if output is not None:
            result.save(output)
        return result


@contextmanager
def _ctrl_c_cancels(run: Run[AdaptResult]) -> Iterator[None]:
    """Ctrl-C cancels the run: an exception in the midst of a step would lose what it has learned."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def cancel(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        run.cancel()
        say("stopping; what was learned so far is kept. Ctrl-C again to leave at once.")

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
