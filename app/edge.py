"""What may enter: everything that is not expected is refused before Gradio sees it.

A request passes these gates in turn: its host and origin, the rate of its client, the table of routes
(`app.routes`), whether the server still takes work, and what its body may be. JSON is read here, within its
limits of bytes, depth and seconds; Gradio would fetch a file reference whose path is a web address, so such
requests are turned away. Files are counted as they arrive (`app.uploads_route`). Every answer gets the
headers that keep other pages, and files of strangers, from acting as this page.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from app import text
from app.clients import MARK_HEADER, ClientMarks, TrustedProxies, header_of, set_header
from app.hosts import AllowedHosts
from app.limits import LIMITS, Limits
from app.metrics import Metrics
from app.routes import AllowedRoute, BodyKind, find_route

__all__ = ["CLIENT", "EdgeState", "RequestGuard", "names_web_address"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)

CLIENT = "atlas.client"  # the key of the client's address in a request's scope
RETRY_SECONDS = 10
COSTS = {
    "page": 10,
    "config": 10,
    "info": 10,
}  # routes that the server works for, in requests that it does not
REFUSED_LATER = (429, 503, 507)  # a client may try again
MAX_ID_LENGTH = 64  # of the ids of sessions, events and uploads, which Gradio keeps

# Gradio makes functions of the page's own script, so its eval cannot be forbidden; nothing may be loaded
# from, or sent to, any other place. A Space is shown inside of a page of huggingface.co.
_PAGE_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self' https://huggingface.co https://*.huggingface.co https://*.hf.space",
    )
)
_FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'self'"
_SAFE_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",
    b"permissions-policy": b"camera=(self), microphone=(), geolocation=(), payment=(), usb=()",
}


def _ignore(*_: str) -> None:
    """Nobody wants to know."""


def _nothing(_: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass
class EdgeState:
    """What the gates share with the rest of the server."""

    routes: tuple[AllowedRoute, ...]
    hosts: AllowedHosts = field(default_factory=AllowedHosts)
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    marks: ClientMarks = field(default_factory=ClientMarks)
    metrics: Metrics = field(default_factory=Metrics)
    limits: Limits = LIMITS
    max_bytes: int = LIMITS.request_bytes
    draining: bool = False
    events: Container[int] | None = None  # the numbers of the page's events; None where any may be
    note_session: Callable[[str, str], None] = _ignore  # told of a session and its client
    listening: Callable[[str], AbstractContextManager[None]] = _nothing  # entered while somebody listens


class RequestGuard:
    """ASGI middleware that lets in what `state` allows, and refuses the rest with a sentence."""

    def __init__(self, app: Application, *, state: EdgeState) -> None:
        self.app, self.state = app, state
        self._rates = RequestRates(state.limits)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:  # noqa: D102 - ASGI's own name
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await _refuse_socket(receive, send)
        answer = _Answer(send, self.state.metrics, is_file="/file=" in scope["path"])
        try:
            self._check_sender(scope)
            answer.route = self._check_route(scope)
            receive = await self._check_body(scope, receive, answer.route)
        except _RefusedRequestError as refused:
            return await answer.refuse(refused)
        except ConnectionError:
            return None
        listens = answer.route.name in ("queue/data", "call/result")
        with self.state.listening(_listened_to(scope)) if listens else nullcontext():
            return await self._pass_on(scope, receive, answer)

    async def _pass_on(self, scope: Message, receive: Receive, answer: _Answer) -> None:
        """Let the application answer; where it fails before it began to, the client gets our sentence."""
        try:
            await self.app(scope, receive, answer.send)
        except Exception as error:  # the border: uvicorn would cut the connection, and log the message
            _log.error("%s failed with %s", answer.route and answer.route.name, type(error).__name__)
            if answer.has_begun:
                raise
            await answer.refuse(_RefusedRequestError(500, text.page.BROKEN))

    def _check_sender(self, scope: Message) -> None:
        """Identify the client; refuse a foreign host or page."""
        given = header_of(scope, MARK_HEADER)
        marked = self.state.marks.read(given) if given else None
        if given and marked is None:
            set_header(scope, MARK_HEADER, None)
        scope[CLIENT] = marked or self.state.proxies.client_of(scope)
        if not self.state.hosts.allows_host(scope):
            raise _RefusedRequestError(421, text.server.OTHER_HOST)
        if scope["method"] not in ("GET", "HEAD") and not self.state.hosts.allows_origin(scope):
            raise _RefusedRequestError(403, text.server.OTHER_ORIGIN)

    def _check_route(self, scope: Message) -> AllowedRoute:
        """The route of a request; refuse too many, what is not in the table, and new work while it drains."""
        path = str(scope["path"])
        route, methods = find_route(self.state.routes, path, str(scope["method"]))
        if not self._rates.allow(scope[CLIENT], cost=COSTS.get(route.name, 1) if route else 1):
            raise _RefusedRequestError(429, text.server.TOO_MANY_REQUESTS)
        if route is None:
            raise _RefusedRequestError(405 if methods else 404, text.server.NOT_HERE, allow=methods)
        if route.starts_work and self.state.draining:
            raise _RefusedRequestError(503, text.server.DRAINING)
        if _route_names_web_address(path):
            raise _RefusedRequestError(403, text.page.NO_ADDRESSES)
        if _has_long_id(scope):
            raise _RefusedRequestError(400, text.server.NOT_JSON)
        if route.name == "mcp":
            set_header(scope, MARK_HEADER, self.state.marks.mark(scope[CLIENT]))
        return route

    async def _check_body(self, scope: Message, receive: Receive, route: AllowedRoute) -> Receive:
        """What gives the body: read and checked where it is JSON, at a pace where it is a form."""
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            return receive
        paced = _PacedBody(receive, self.state.limits).receive
        if route.body is BodyKind.FORM:
            if not header_of(scope, "content-type").lower().startswith("multipart/form-data"):
                raise _RefusedRequestError(415, text.server.NOT_MULTIPART)
            return paced
        try:
            body = await _read(paced, self.state.max_bytes if route.body is BodyKind.JSON else 0)
        except TimeoutError:
            raise _RefusedRequestError(408, text.server.TOO_SLOW_BODY) from None
        if body is None:
            raise _RefusedRequestError(413, text.page.TOO_LARGE)
        if body:
            self._check_json(body, scope)
        return _replay(body, receive)

    def _check_json(self, body: bytes, scope: Message) -> None:
        """Refuse what is no JSON, too deep or too much; note whose session it names."""
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):
            raise _RefusedRequestError(400, text.server.NOT_JSON) from None
        if not _is_within_limits(given, self.state.limits):
            raise _RefusedRequestError(400, text.server.NOT_JSON)
        if _holds_web_address(given):
            raise _RefusedRequestError(400, text.page.NO_ADDRESSES)
        if isinstance(given, dict) and not self._is_known_event(given.get("fn_index")):
            raise _RefusedRequestError(400, text.server.NOT_JSON)
        session = given.get("session_hash") if isinstance(given, dict) else None
        if isinstance(session, str):
            self.state.note_session(session, scope[CLIENT])

    def _is_known_event(self, number: object) -> bool:
        """Whether a request names an event of the page by its number, or none."""
        events = self.state.events
        return number is None or events is None or (isinstance(number, int) and number in events)


class _RefusedRequestError(Exception):
    def __init__(self, status: int, sentence: str, *, allow: frozenset[str] = frozenset()) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.allow = status, sentence, allow


class _Answer:
    """Sends an answer with the safe headers, counts it, and refuses."""

    def __init__(self, send: Send, metrics: Metrics, *, is_file: bool) -> None:
        self._send, self._metrics, self._is_file = send, metrics, is_file
        self.route: AllowedRoute | None = None
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            message = {**message, "headers": self._with_safe_headers(message)}
            self._metrics.count_request(self.route.name if self.route else "other", int(message["status"]))
        await self._send(message)

    async def refuse(self, refusal: _RefusedRequestError) -> None:
        body = json.dumps({"detail": refusal.sentence}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),  # what is left of its body is not read
        ]
        if refusal.allow:
            headers.append((b"allow", ", ".join(sorted(refusal.allow)).encode()))
        await self.send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def _with_safe_headers(self, message: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
        policy = (_FILE_POLICY if self._is_file else _PAGE_POLICY).encode()
        ours = {**_SAFE_HEADERS, b"content-security-policy": policy}
        if message["status"] in REFUSED_LATER:
            ours[b"retry-after"] = str(RETRY_SECONDS).encode()
        given = [(bytes(key).lower(), bytes(value)) for key, value in message.get("headers", ())]
        return [*(one for one in given if one[0] not in ours or one[0] == b"retry-after"), *ours.items()]


class RequestRates:
    """How many requests each client may make: a burst, then so many a second."""

    MAX_CLIENTS = 10_000

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left: dict[str, tuple[float, float]] = {}  # by client: when, and how many were left

    def allow(self, client: str, *, cost: int = 1) -> bool:
        """Count a request as so many; False where it is one too many."""
        now, burst = time.monotonic(), float(self._limits.request_burst)
        when, left = self._left.pop(client, (now, burst))
        left = min(burst, left + (now - when) * self._limits.requests_per_second)
        allowed = left >= cost
        # put at the end: the first is then the client not seen for longest
        self._left[client] = (now, left - cost if allowed else left)
        while len(self._left) > self.MAX_CLIENTS:
            self._left.pop(next(iter(self._left)))
        return allowed


class _PacedBody:
    """A body that has to come at a pace: TimeoutError where it does not, ConnectionError if it breaks off."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._start = time.monotonic()
        self._nbytes = 0
        self._complete = False

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()  # it waits for the client to leave
        allowed = self._limits.body_seconds + self._nbytes / self._limits.body_rate
        left = max(self._start + allowed - time.monotonic(), 0.0)
        try:
            message = await asyncio.wait_for(self._receive(), left)
        except asyncio.TimeoutError:
            raise TimeoutError("the body came too slowly") from None
        if message["type"] == "http.disconnect":
            raise ConnectionError("the sender is gone")
        self._nbytes += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        return message


# ---- JSON


def names_web_address(body: bytes) -> bool:
    """Whether JSON holds a file reference, `{"path": …}` at any depth, whose path is a web address.

    >>> names_web_address(b'{"data": [{"path": "https://example.org/cat.jpg"}]}')
    True
    """
    try:
        return _holds_web_address(json.loads(body))
    except (ValueError, RecursionError):
        return False  # not JSON, which is refused for that


def _holds_web_address(given: object) -> bool:
    return any(isinstance(one, dict) and _is_web_address(one.get("path")) for one, _ in _walk(given))


def _is_within_limits(given: object, limits: Limits) -> bool:
    """Whether JSON is no deeper and no larger than the page's own, and its ids no longer."""
    files = 0
    for values, (one, depth) in enumerate(_walk(given)):
        files += isinstance(one, dict) and "path" in one
        if depth > limits.json_depth or values > limits.json_values or files > limits.json_files:
            return False
    ids = [given.get(name) for name in ("session_hash", "event_id")] if isinstance(given, dict) else []
    return all(one is None or (isinstance(one, str) and len(one) <= MAX_ID_LENGTH) for one in ids)


def _walk(given: object) -> Iterable[tuple[object, int]]:
    """Every value inside of JSON, with its depth."""
    pending: list[tuple[object, int]] = [(given, 0)]
    while pending:
        value, depth = pending.pop()
        yield value, depth
        if isinstance(value, dict):
            pending.extend((one, depth + 1) for one in value.values())
        elif isinstance(value, list):
            pending.extend((one, depth + 1) for one in value)


def _is_web_address(path: object) -> bool:
    try:
        return isinstance(path, str) and urlsplit(path).scheme in ("http", "https")
    except ValueError:
        return True


def _route_names_web_address(route: str) -> bool:
    _, found, path = route.partition("/file=")
    return bool(found) and (_is_web_address(path) or _is_web_address(unquote(path)))


# ---- the request


def _has_long_id(scope: Mapping[str, Any]) -> bool:
    """Whether an address names a session or an upload by more than an id: Gradio would keep it all."""
    query = parse_qs(bytes(scope.get("query_string", b"")).decode("latin-1"))
    ids = [value for name in ("session_hash", "upload_id", "event_id") for value in query.get(name, ())]
    return any(len(value) > MAX_ID_LENGTH for value in ids)


def _listened_to(scope: Mapping[str, Any]) -> str:
    """The session, or the job, whose messages a request waits for."""
    query = parse_qs(bytes(scope.get("query_string", b"")).decode("latin-1"))
    return query.get("session_hash", [""])[0] or str(scope["path"]).rpartition("/")[2]


async def _read(receive: Receive, max_bytes: int) -> bytes | None:
    """A whole body; None where it is too large."""
    chunks: list[bytes] = []
    nbytes = 0
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        nbytes += len(chunks[-1])
        if nbytes > max_bytes:
            return None
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body in one piece, then what the connection sends next."""
    unread = [body]

    async def next_message() -> Message:
        return (
            {"type": "http.request", "body": unread.pop(), "more_body": False} if unread else await receive()
        )

    return next_message


async def _refuse_socket(receive: Receive, send: Send) -> None:
    """Nothing here talks over a web socket."""
    await receive()
    await send({"type": "websocket.close", "code": 1008})
