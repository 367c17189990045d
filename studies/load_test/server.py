"""The real app in a process of its own, with its files in a folder.

with serve(folder) as server:
    Client(server.address), server.log, server.resident_megabytes
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PATIENCE", "ROOT", "Server", "serve", "start_server", "stop_server"]

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 240  # seconds; a quiet machine needs about ten, a busy one many more
READY = "is ready"


@dataclass
class Server:
    """A running app: its address, the folder of its files, and its log so far."""

    process: subprocess.Popen[str]
    folder: Path
    metrics_port: int | None = None
    lines: list[str] = field(default_factory=list)
    listener: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        for line in self.process.stderr or ():
            self.lines.append(line)

    @property
    def address(self) -> str:
        """Where the page is."""
        found = re.search(r"ready: open (http://\S+)", self.log)
        return found[1].rstrip("/") if found else ""

    @property
    def log(self) -> str:
        """Everything that the app has written to stderr."""
        return "".join(self.lines)

    @property
    def resident_megabytes(self) -> float | None:
        """Memory that the app holds now; None where the system does not tell."""
        return self._status("VmRSS")

    @property
    def peak_megabytes(self) -> float | None:
        """The most memory that the app has held."""
        return self._status("VmHWM")

    @property
    def open_files(self) -> int | None:
        """Files and connections that the app has open."""
        try:
            return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))
        except OSError:
            return None

    def _status(self, name: str) -> float | None:
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        except OSError:
            return None
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else None


@contextlib.contextmanager
def serve(folder: Path, *, metrics: bool = False, **environment: str) -> Iterator[Server]:
    """The app for as long as the block lasts."""
    server = start_server(folder, metrics=metrics, **environment)
    try:
        yield server
    finally:
        stop_server(server)


def start_server(
    folder: Path, *, prefix: Sequence[str] = (), metrics: bool = False, **environment: str
) -> Server:
    """The app on a free port, with its cache and its uploads below `folder`, once its page can be opened.

    `prefix` is put before the command, as in `unshare --pid --fork`; with `metrics` they are served too.
    """
    metrics_port = _free_port() if metrics else None
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("ATLAS_", "GRADIO_"))}
    own = {
        "ATLAS_CACHE": str(folder / "cache"),
        "GRADIO_TEMP_DIR": str(folder / "uploads"),
        "GRADIO_SERVER_PORT": str(_free_port()),
        "TMPDIR": str(folder),
        **({"ATLAS_METRICS_PORT": str(metrics_port)} if metrics else {}),
    }
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "app"],
        cwd=ROOT,
        env=inherited | own | environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    server = Server(process, folder, metrics_port)
    deadline = time.monotonic() + PATIENCE
    while READY not in server.log:
        if process.poll() is not None or time.monotonic() > deadline:
            stop_server(server)
            raise RuntimeError(f"the app did not start:\n{server.log}")
        time.sleep(0.05)
    return server


def stop_server(server: Server) -> None:
    """End the app: terminate it, and kill it where it does not end as it promises."""
    server.process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.process.wait(timeout=20)
    server.process.kill()
    server.listener.join(timeout=10)
    if server.process.stderr is not None:
        server.process.stderr.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
