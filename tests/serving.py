"""One running app for every test that talks to it over the network."""

from __future__ import annotations

import atexit
import contextlib
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from app.page import build, launch
from app.serving import LiveServer
from app.session import Engines, OpenedModel, PageRuns
from app.storage import Storage
from studies.load_test.server import PATIENCE, ROOT, Server, start_server, stop_server

__all__ = ["PATIENCE", "ROOT", "Server", "served", "shared_server", "start_server", "stop_server"]


@functools.cache
def shared_server() -> Server:
    """One server for every test that only asks it things; it ends with the tests."""
    folder = tempfile.TemporaryDirectory(prefix="atlas-app-")
    atexit.register(folder.cleanup)
    server = start_server(Path(folder.name))
    atexit.register(stop_server, server)
    return server


@contextlib.contextmanager
def served(opened: OpenedModel, engines: Engines | None = None) -> Iterator[LiveServer]:
    """A page of this very process, served while the block lasts; its files are in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="atlas-served-") as root:
        storage, runs = Storage.open(Path(root)), PageRuns()
        page = build(opened, engines, runs=runs)
        server = launch(page, opened, storage=storage, runs=runs, host="127.0.0.1")
        try:
            yield server
        finally:
            server.close()
