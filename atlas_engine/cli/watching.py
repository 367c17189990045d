"""A run on the terminal: a line of progress, and Ctrl-C that keeps what was learned. Knows no methods."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.cli.output import say
from atlas_engine.cli.progress import Progress

if TYPE_CHECKING:
    from atlas_engine.result import AdaptResult, Run

__all__ = ["watched"]


def watched(work: Run[AdaptResult], *, output: Path | None = None) -> AdaptResult:
    """The result, its recipe written to `output` before anything else is done with it.

    The first Ctrl-C ends the run where it stands; a second one ends the command.
    """
    with Progress(100, "adapting (% of the work)") as progress, _interrupts(work):
        for step in work:
            loss = f", loss {step.loss:.3f}" if step.phase == "learn" else ""
            done = int(100 * (step.share or 0.0))
            progress.advance(done - progress.done, f"{step.phase} {step.index + 1} of {step.of}{loss}")
        result = work.result()
        if output is not None:
            result.save(output)
        return result


@contextmanager
def _interrupts(work: Run[AdaptResult]) -> Iterator[None]:
    """Ctrl-C as a wish to the run: an exception in the midst of a step would lose what it has learned."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def cancel(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        work.cancel()
        say("stopping; what was learned so far is kept. Ctrl-C again to leave at once.")

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
