"""The server's log: where something failed, never what a visitor wrote, and not without end.

Messages of exceptions hold file names and words, so an exception is logged as its type and the lines of code
it came by. Of other libraries' messages only the fixed part is written, without what is filled in. So many
lines a minute are written; of the rest, the number.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from types import TracebackType

__all__ = ["QuietHandler", "keep_log_quiet"]

OURS = ("app", "atlas_engine")
MAX_LINE = 300  # characters
LINES_A_MINUTE = 120


class QuietHandler(logging.Handler):
    """Writes records to stderr without visitors' words, and at most so many lines a minute."""

    def __init__(self, *, lines_a_minute: int = LINES_A_MINUTE) -> None:
        super().__init__()
        self._most = lines_a_minute
        self._minute, self._written, self._left_out = 0, 0, 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        ours = record.name.split(".")[0] in OURS
        message = record.getMessage() if ours else str(record.msg)
        lines = message.strip().splitlines() if ours else message.strip().splitlines()[:1]
        if record.exc_info and record.exc_info[1] is not None:
            lines += describe_exception(record.exc_info[1])
        self.write(lines)

    def write(self, lines: list[str]) -> None:
        """Write lines, shortened, while this minute's are not used up."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            if self._left_out:
                sys.stderr.write(f"({self._left_out} further lines were left out)\n")
            self._minute, self._written, self._left_out = minute, 0, 0
        room = max(self._most - self._written, 0)
        for line in lines[:room]:
            sys.stderr.write(line[:MAX_LINE] + "\n")
        sys.stderr.flush()
        self._written += len(lines[:room])
        self._left_out += len(lines[room:])


def describe_exception(error: BaseException) -> list[str]:
    """The type of an exception and the lines of code that it came by, without its message."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return [
        f"{type(error).__name__} at",
        *(
            f"  {frame.filename.rpartition('site-packages/')[2]}:{frame.lineno} {frame.name}"
            for frame in frames
        ),
    ]


def keep_log_quiet() -> QuietHandler:
    """Send every log, and every traceback that Gradio prints or a thread dies with, through a QuietHandler.

    Call it after the server has started: uvicorn sets up loggers of its own. Gradio prints tracebacks of
    events itself, by `traceback.print_exc`, so that is replaced for the whole process.
    """
    handler = QuietHandler()
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
    logging.captureWarnings(True)

    def print_exc(*_: object, **__: object) -> None:
        error = sys.exc_info()[1]
        if error is not None:
            handler.write(describe_exception(error))

    def log_uncaught(kind: type[BaseException], error: BaseException | None, _: TracebackType | None) -> None:
        handler.write(describe_exception(error) if error is not None else [kind.__name__])

    traceback.print_exc = print_exc
    threading.excepthook = lambda given: log_uncaught(given.exc_type, given.exc_value, given.exc_traceback)
    return handler
