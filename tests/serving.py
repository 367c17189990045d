"""One running app for every test that talks to it over the network."""

from __future__ import annotations

import atexit
import functools
import tempfile
from pathlib import Path

from studies.load_test.server import PATIENCE, ROOT, Server, start_server, stop_server

__all__ = ["PATIENCE", "ROOT", "Server", "shared_server", "start_server", "stop_server"]


@functools.cache
def shared_server() -> Server:
    """One server for every test that only asks it things; it ends with the tests."""
    folder = tempfile.TemporaryDirectory(prefix="atlas-app-")
    atexit.register(folder.cleanup)
    server = start_server(Path(folder.name))
    atexit.register(stop_server, server)
    return server
