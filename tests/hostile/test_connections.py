"""Half-open, slow and endless connections, against a real server of small limits: others are answered."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
import uvicorn

from app.clients import TrustedProxies
from app.connections import ConnectionLimits, limit_connections, raise_file_limit
from app.edge import EdgeState, RequestGuard
from app.limits import Limits
from app.metrics import Metrics
from app.routes import AllowedRoute, BodyKind

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of sockets that the server cut

LIMITS = Limits(
    connections=12, client_connections=8, header_seconds=0.6, body_seconds=0.6, idle_seconds=1, body_rate=100
)


async def echo(scope, receive, send):
    """The application behind the guard: it answers with the length of the body."""
    nbytes, more = 0, scope["type"] == "http"
    while more:
        message = await receive()
        nbytes, more = nbytes + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
    await send({"type": "http.response.body", "body": f"{nbytes:3d}".encode()})


@pytest.fixture(scope="module")
def server():
    import re

    routes = (
        AllowedRoute("page", frozenset({"GET"}), re.compile("/")),
        AllowedRoute("json", frozenset({"POST"}), re.compile("/json"), BodyKind.JSON),
    )
    guard = RequestGuard(echo, state=EdgeState(routes, limits=LIMITS))
    running = uvicorn.Server(uvicorn.Config(guard, port=0, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    connections = ConnectionLimits(TrustedProxies(), Metrics(), limits=LIMITS, most=12)
    limit_connections(running, connections)
    running.connections_made = connections
    yield running
    running.should_exit = True
    thread.join(timeout=10)


@pytest.fixture
def connect(server):
    port = server.servers[0].sockets[0].getsockname()[1]
    opened = []

    def open_connection(source="127.0.0.1"):
        line = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))
        opened.append(line)
        return line

    yield open_connection
    for line in opened:
        line.close()
    wait_until(lambda: not server.connections_made.open)


def wait_until(holds, seconds=5.0):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    assert holds()


def ask(line):
    line.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    return line.recv(4000)


def is_cut(line, seconds):
    line.settimeout(seconds)
    with contextlib.suppress(ConnectionError):
        while line.recv(4000):
            pass
    return True


def test_half_open_connections_of_one_client_leave_room_for_others(connect):
    flood = [connect("127.0.0.2") for _ in range(20)]
    for line in flood:
        with contextlib.suppress(ConnectionError):
            line.sendall(b"GET / HTTP/1.1\r\nHo")
    start = time.monotonic()
    assert ask(connect()).startswith(b"HTTP/1.1 200")
    assert time.monotonic() - start < 1
    refusal = flood[-1].recv(4000)
    assert b"503" in refusal[:20]
    assert b"Retry-After" in refusal


def test_where_all_are_taken_the_longest_idle_makes_room(connect):
    flood = [connect(f"127.0.0.{2 + place // 6}") for place in range(12)]
    time.sleep(0.1)
    assert ask(connect()).startswith(b"HTTP/1.1 200")
    assert is_cut(flood[0], 5)


def test_a_head_that_does_not_come_is_not_waited_for(connect):
    line = connect()
    line.sendall(b"GET / HTTP/1.1\r\n")
    start = time.monotonic()
    assert is_cut(line, 5)
    assert time.monotonic() - start < 3


def test_a_second_head_that_comes_byte_by_byte_is_not_waited_for(connect):
    line = connect()
    ask(line)
    line.sendall(b"GET / HT")
    start = time.monotonic()
    assert is_cut(line, 5)
    assert time.monotonic() - start < 3


def test_a_connection_that_asks_nothing_more_is_closed(connect):
    line = connect()
    assert ask(line).startswith(b"HTTP/1.1 200")
    assert is_cut(line, 5)


def test_a_body_that_does_not_come_is_given_up_with_a_sentence(connect):
    line = connect()
    line.sendall(b"POST /json HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
    assert b"408" in line.recv(4000)


def test_a_slow_body_that_keeps_the_pace_is_taken(connect):
    line = connect()
    line.sendall(b"POST /json HTTP/1.1\r\nHost: a\r\nContent-Length: 202\r\n\r\n" + b'"' + b"x" * 100)
    time.sleep(0.8)
    line.sendall(b"x" * 100 + b'"')
    assert b"200 OK" in line.recv(4000)


def test_a_head_without_end_is_refused(connect):
    line = connect()
    with contextlib.suppress(ConnectionError):
        for _ in range(40):
            line.sendall(b"GET / HTTP/1.1\r\nX: " + b"y" * 4000)
    with contextlib.suppress(ConnectionError):
        assert b"400" in line.recv(4000)


def test_the_system_is_asked_for_enough_open_files():
    assert 20 <= raise_file_limit(500) <= 500
