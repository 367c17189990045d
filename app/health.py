"""Whether the server lives, and whether it can do its work: `/livez` and `/readyz`.

`/livez` answers while the event loop turns. `/readyz` tells of each part that an answer needs: the model, its
bank, the helper process that reads images, and room on the disk. The checks run beside the requests, so that
asking costs nothing.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import atlas_engine as atlas
from app.storage import Storage

__all__ = ["Health", "check_bank", "check_decoder", "check_disk", "health_routes"]

CHECK_SECONDS = 10.0

Check = Callable[[], str]
"""What is wrong with a part, in a few words without paths or names; '' where nothing is."""


class Health:
    """The state of the server's parts, checked every few seconds in a thread of its own."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = dict(checks)
        self._found: dict[str, str] = {}
        self._stop = threading.Event()
        self.draining = False

    @property
    def problems(self) -> dict[str, str]:
        """What is wrong, by part; nothing where the server is ready."""
        found = {name: why for name, why in self._found.items() if why}
        return {**found, "server": "is stopping"} if self.draining else found

    def refresh(self) -> dict[str, str]:
        """Check every part now; returns what is wrong."""
        self._found = {name: _run(check) for name, check in self._checks.items()}
        return self.problems

    def watch(self) -> None:
        """Go on checking in the background."""
        threading.Thread(target=self._watch, name="atlas-health", daemon=True).start()

    def close(self) -> None:
        """Check no more."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(CHECK_SECONDS):
            self.refresh()

    def as_json(self) -> dict[str, object]:
        """Whether it is ready, and what is wrong with each part."""
        parts = {name: why or "ok" for name, why in self._found.items()}
        return {"ready": not self.problems, **parts, **({"server": "is stopping"} if self.draining else {})}


def health_routes(health: Health) -> list[Route]:
    """`/livez` and `/readyz`."""

    async def livez(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_: Request) -> Response:
        return JSONResponse(health.as_json(), 503 if health.problems else 200)

    return [Route("/livez", livez, methods=["GET"]), Route("/readyz", readyz, methods=["GET"])]


def check_bank(engine: atlas.Atlas) -> str:
    """What is wrong with an engine's bank: it is read whole, once."""
    if engine.bank_path is None:
        return ""  # this model has none, and asking needs none
    try:
        _ = engine.bank
    except atlas.AtlasError:
        return "cannot be read"
    return ""


def check_decoder() -> str:
    """What is wrong with the process that reads images: it reads a small one."""
    try:
        atlas.read_image(_SMALL_PNG, name="health.png")
    except atlas.AtlasError:
        return "reads no image"
    return ""


def check_disk(storage: Storage) -> str:
    """What is wrong with the visitors' folder."""
    try:
        probe = storage.scratch / "health"
        probe.write_bytes(b"ok")
        probe.unlink()
    except OSError:
        return "cannot be written"
    return "" if storage.has_room else "is full"


def _run(check: Check) -> str:
    try:
        return check()
    except Exception as error:  # a check that fails is a part that does not work
        return f"failed with {type(error).__name__}"


def _png(side: int) -> bytes:
    """A grey PNG of side × side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x80" * side for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


_SMALL_PNG = _png(16)
