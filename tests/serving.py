"""The real app in a process of its own, for tests that talk to it over the network."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 240  # seconds; a quiet machine needs about ten, a busy one many more


@dataclass
class Server:
    """A running app: its address, and what it has said so far."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    listener: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line)

    @property
    def address(self) -> str:
        return re.search(r"http://\S+", self.log)[0].rstrip("/")

    @property
    def log(self) -> str:
        return "".join(self.lines)


def start_server(folder: Path, **environment: str) -> Server:
    """The app on a free port, with its cache and its uploads below `folder`, once its page can be opened."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("ATLAS_", "GRADIO_"))}
    own = {
        "ATLAS_CACHE": str(folder / "cache"),
        "GRADIO_TEMP_DIR": str(folder / "uploads"),
        "GRADIO_SERVER_PORT": str(_free_port()),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "app"],
        cwd=ROOT,
        env=inherited | own | environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    server = Server(process)
    deadline = time.monotonic() + PATIENCE
    while "is ready" not in server.log:
        if process.poll() is not None or time.monotonic() > deadline:
            stop_server(server)
            raise AssertionError(f"the app did not start:\n{server.log}")
        time.sleep(0.1)
    return server


def stop_server(server: Server) -> None:
    server.process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.process.wait(timeout=10)
    server.process.kill()
    server.listener.join(timeout=10)
    server.process.stderr.close()


@functools.cache
def shared_server() -> Server:
    """One server for every test that only asks it things; it ends with the tests."""
    folder = tempfile.TemporaryDirectory(prefix="atlas-app-")
    atexit.register(folder.cleanup)
    server = start_server(Path(folder.name))
    atexit.register(stop_server, server)
    return server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
