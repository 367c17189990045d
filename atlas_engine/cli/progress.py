"""How far a long command has come, on stderr. Knows nothing of what is being done.

    with Progress(len(images), "reading") as progress:
        for image in images:
            ...
            progress.advance()

On a terminal one line is redrawn; elsewhere (a log, a pipe) a line is written every ten seconds. A task that
ends before the first drawing leaves no trace.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from atlas_engine.views.tables import printable

__all__ = ["Progress"]

REDRAW_SECONDS = 0.1
LOG_SECONDS = 10.0


class Progress:
    """A count, a rate and the time left, drawn now and then."""

    def __init__(
        self,
        total: int | None,
        label: str,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.label, self.done = total, label, 0
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._redraws = self._stream.isatty()
        self._interval = REDRAW_SECONDS if self._redraws else LOG_SECONDS
        self._start = self._drawn_at = clock()
        self._drawn_width = 0

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count on, and redraw if it is time; `note` is shown behind the rest (a loss, a file name)."""
        self.done += count
        now = self._clock()
        if now - self._drawn_at >= self._interval:
            self._drawn_at = now
            self._draw(self.line(note))

    def line(self, note: str = "") -> str:
        """The line as it stands: `reading 30/120, 15.0/s, 6 s left`."""
        seconds = self._clock() - self._start
        rate = self.done / seconds if seconds > 0 else 0.0
        parts = [f"{self.label} {self.done}" + (f"/{self.total}" if self.total is not None else "")]
        if rate > 0:
            parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each")
            if self.total is not None:
                parts.append(f"{_duration((self.total - self.done) / rate)} left")
        return printable(", ".join([*parts, note] if note else parts))

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._drawn_width:
            self._draw("")
            self._stream.write("\r")
            self._stream.flush()

    def _draw(self, line: str) -> None:
        if self._redraws:
            line = line[: shutil.get_terminal_size().columns - 1]  # a line that wraps cannot be redrawn
            self._stream.write("\r" + line.ljust(self._drawn_width))  # spaces wipe a longer line before it
            self._drawn_width = len(line)
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()


def _duration(seconds: float) -> str:
    """`42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
