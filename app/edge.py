"""What may enter: requests that the web server refuses before Gradio sees them.

Gradio fetches a file reference whose path is a web address, on the server and without a size limit. No
visitor of this page needs that, so such requests are turned away, and so are those larger than it can make.
Of uploads Gradio counts each file, but not all of them together: that is done here, as the bytes arrive.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.formparsers import MultiPartException

from app import text

__all__ = ["RequestGuard", "names_web_address"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class RequestGuard:
    """ASGI middleware: reads the body of a JSON request, within `max_bytes`, and passes it on or refuses.

    An upload is passed on as it comes, up to `max_upload_bytes`.
    """

    def __init__(self, app: Application, *, max_bytes: int, max_upload_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes
        self.max_upload_bytes = max_upload_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:  # noqa: D102 - ASGI's own name
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        pass_on = self._pass_upload if _is_upload(scope) else self._pass_request
        return await pass_on(scope, receive, send)

    async def _pass_request(self, scope: Message, receive: Receive, send: Send) -> None:
        if _route_names_web_address(scope["path"]):
            return await _refuse(send, 403, text.page.NO_ADDRESSES)
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            return await self.app(scope, receive, send)
        body = await _read(receive, self.max_bytes)
        if body is None:
            return await _refuse(send, 413, text.page.TOO_LARGE)
        if names_web_address(body):
            return await _refuse(send, 400, text.page.NO_ADDRESSES)
        return await self.app(scope, _replay(body, receive), send)

    async def _pass_upload(self, scope: Message, receive: Receive, send: Send) -> None:
        if _declared_length(scope) > self.max_upload_bytes:
            return await _refuse(send, 413, text.page.UPLOAD_TOO_LARGE)
        body = _CountedBody(receive, self.max_upload_bytes)

        async def answer(message: Message) -> None:
            if not body.is_too_large:
                await send(message)

        try:
            await self.app(scope, body.receive, answer)
        except MultiPartException:
            if not (body.is_too_large or body.is_broken_off):
                raise
        if body.is_too_large:
            await _refuse(send, 413, text.page.UPLOAD_TOO_LARGE)
        return None


class _CountedBody:
    """The body of an upload; reading it raises where it is too large or the sender is gone.

    It raises the error at which Starlette's form reader deletes the files that it has begun; at others it
    leaves them.
    """

    def __init__(self, receive: Receive, max_bytes: int) -> None:
        self._receive, self._left = receive, max_bytes
        self._complete = False
        self.is_broken_off = False

    @property
    def is_too_large(self) -> bool:
        return self._left < 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self._complete:
            self.is_broken_off = True
            raise MultiPartException("the sender is gone")
        self._left -= len(message.get("body", b""))
        if self.is_too_large:
            raise MultiPartException("the upload is too large")
        self._complete = self._complete or not message.get("more_body", False)
        return message


def names_web_address(body: bytes) -> bool:
    """Whether JSON holds a file reference, `{"path": …}` at any depth, whose path is a web address.

    >>> names_web_address(b'{"data": [{"path": "https://example.org/cat.jpg"}]}')
    True
    """
    try:
        pending = [json.loads(body)]
    except (ValueError, RecursionError):
        return False  # not JSON, so Gradio refuses it too
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if _is_web_address(value.get("path")):
                return True
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return False


def _is_web_address(path: object) -> bool:
    try:
        return isinstance(path, str) and urlsplit(path).scheme in ("http", "https")
    except ValueError:
        return True


def _route_names_web_address(route: str) -> bool:
    _, found, path = route.partition("/file=")
    return bool(found) and (_is_web_address(path) or _is_web_address(unquote(path)))


def _is_upload(scope: Message) -> bool:
    return str(scope["path"]).rstrip("/").endswith("/upload")


def _declared_length(scope: Message) -> int:
    """The content-length of a request; 0 where it has none, or none that is a number."""
    length = dict(scope["headers"]).get(b"content-length", b"")
    return int(length) if length.isdigit() else 0


async def _read(receive: Receive, max_bytes: int) -> bytes | None:
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


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"detail": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
