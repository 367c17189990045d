"""The connections of the web server: how many there may be, and how long each may take.

uvicorn has no time limit for the head of a request, and one limit for all clients together: a thousand
half-open connections of one stranger shut everybody out. Here a client has a share, a connection without a
complete request is closed in time, and where all are taken the one that has been idle for longest makes room.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from app import text
from app.clients import TrustedProxies
from app.limits import LIMITS, Limits
from app.metrics import Metrics

__all__ = ["ConnectionLimits", "limit_connections", "raise_file_limit"]

FILES_PER_CONNECTION = 1.5  # a connection, and now and then a file of its request
OTHER_FILES = 100  # of the process itself


@dataclass
class ConnectionLimits:
    """How many connections there are, and may be. Used by the event loop's thread alone."""

    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    metrics: Metrics = field(default_factory=Metrics)
    limits: Limits = LIMITS
    most: int = LIMITS.connections
    open: set[Any] = field(default_factory=set)
    idle: dict[Any, None] = field(default_factory=dict)  # without a request, the longest idle first
    by_client: Counter[str] = field(default_factory=Counter)

    def admit(self, connection: Any, client: str) -> bool:  # noqa: ANN401 - uvicorn's protocol
        """Count a new connection; False where its client, or the server, has too many."""
        if client not in self.proxies and self.by_client[client] >= self.limits.client_connections:
            self.metrics.count_refusal("client connections")
            return False
        if len(self.open) >= self.most and not self._close_longest_idle():
            self.metrics.count_refusal("connections")
            return False
        self.open.add(connection)
        self.by_client[client] += 1
        return True

    def release(self, connection: Any, client: str) -> None:  # noqa: ANN401 - as above
        """Forget a connection that is closed."""
        self.idle.pop(connection, None)
        if connection in self.open:
            self.open.discard(connection)
            self.by_client[client] -= 1
            if self.by_client[client] <= 0:
                del self.by_client[client]

    def _close_longest_idle(self) -> bool:
        connection = next(iter(self.idle), None)
        if connection is None:
            return False
        connection.transport.abort()
        connection.forget()
        return True


def limit_connections(server: uvicorn.Server, connections: ConnectionLimits) -> None:
    """Let a running server make its further connections within these limits."""
    config, limits = server.config, connections.limits
    config.timeout_keep_alive = limits.idle_seconds
    config.timeout_graceful_shutdown = 2
    config.h11_max_incomplete_event_size = 32 << 10
    config.loaded_app = config.app  # without uvicorn's own, looser, idea of which proxies to trust
    config.http_protocol_class = _protocol_with(connections)


def raise_file_limit(wanted: int = LIMITS.connections) -> int:
    """Ask the system for enough open files for so many connections; returns how many there may be."""
    try:
        import resource
    except ImportError:  # not on Windows
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = int(wanted * FILES_PER_CONNECTION) + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft >= needed else max(int((soft - OTHER_FILES) / FILES_PER_CONNECTION), 20)


def _protocol_with(connections: ConnectionLimits) -> type[H11Protocol]:
    """uvicorn's HTTP protocol with these limits."""

    class LimitedProtocol(H11Protocol):
        head_timer: asyncio.TimerHandle | None = None
        peer = ""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.peer = self.client[0] if self.client else ""
            if connections.admit(self, self.peer):
                self.wait_for_head()
            else:
                transport.write(_no_connection())
                transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self.forget()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self not in connections.open:
                return
            super().data_received(data)
            if self.has_request:
                self.stop_waiting()
            elif self.timeout_keep_alive_task is None and self.head_timer is None:
                self.wait_for_head()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.has_request:
                connections.idle[self] = None

        @property
        def has_request(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def wait_for_head(self) -> None:
            """Close the connection unless the head of a request is complete in time."""
            connections.idle[self] = None
            self.head_timer = self.loop.call_later(connections.limits.header_seconds, self.transport.abort)

        def stop_waiting(self) -> None:
            connections.idle.pop(self, None)
            if self.head_timer is not None:
                self.head_timer.cancel()
                self.head_timer = None

        def forget(self) -> None:
            self.stop_waiting()
            connections.release(self, self.peer)

    return LimitedProtocol


def _no_connection() -> bytes:
    body = text.server.TOO_MANY_CONNECTIONS.encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
        f"Retry-After: 10\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
