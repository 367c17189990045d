"""An innocent visitor who opens the page again and again while others attack it, and how long that takes."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import httpx

__all__ = ["InnocentVisitor"]

POLL_SECONDS = 0.5
PATIENCE = 30.0


class InnocentVisitor:
    """Opens the page twice a second while the block lasts.

    with InnocentVisitor(address) as visitor: ...
    visitor.longest_seconds, visitor.failures
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._visit, daemon=True)
        self.seconds: list[float] = []
        self.failures = 0

    @property
    def longest_seconds(self) -> float:
        """The longest that the page took."""
        return max(self.seconds, default=0.0)

    def __enter__(self) -> InnocentVisitor:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=2 * PATIENCE)

    def _visit(self) -> None:
        headers = {"x-forwarded-for": "192.0.2.1"}  # the server is told to trust loopback as a proxy
        while not self._stop.is_set():
            start = time.monotonic()
            try:
                with httpx.Client(timeout=PATIENCE, headers=headers) as client:
                    failed = client.get(f"{self._address}/config").status_code != 200
            except httpx.HTTPError:
                failed = True
            self.failures += failed
            self.seconds.append(time.monotonic() - start)
            self._stop.wait(POLL_SECONDS)
