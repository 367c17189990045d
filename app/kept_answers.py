"""Answers that are the same for every visitor: made once for an address, compressed once, and kept.

Gradio makes the page anew for each request: it copies the description of every component, writes it as JSON
and compresses that, some 60 ms of work each for the page and its configuration, which nothing else in the
process can use. A few clients that open the page again and again so take a whole core. What is kept depends
on the address that the page was asked for, because Gradio writes that into it, and on nothing else that a
visitor sends.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from app.clients import header_of

__all__ = ["KeptAnswers"]

KEPT = ("/", "/config", "/config/", "/gradio_api/info", "/gradio_api/info/")
ADDRESS_HEADERS = ("host", "origin", "x-forwarded-host", "x-forwarded-proto", "x-gradio-server")
ALL_ENDPOINTS = b"all_endpoints=True"  # the one query that changes an answer and is not for the page's script
MAX_KEPT = 32  # answers; about 0.2 MB each where they are compressed

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class KeptAnswers:
    """ASGI middleware: answers from memory what it has answered at the same address before."""

    def __init__(self, app: Application, *, most: int = MAX_KEPT) -> None:
        self.app, self._most = app, most
        self._kept: OrderedDict[object, asyncio.Future[_Answer]] = (
            OrderedDict()
        )  # the one used last at the end

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:  # noqa: D102 - ASGI's own name
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or scope["path"] not in KEPT:
            return await self.app(scope, receive, send)
        answer = await self._answer(_with_address_only(scope))
        body = answer.body if scope["method"] == "GET" else b""
        await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers]})
        return await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Message) -> _Answer:
        """The answer to a request; those who ask for the same meanwhile wait for this one."""
        address = (scope.get("scheme"), scope.get("root_path"), *scope["headers"])
        key = (scope["path"], scope["query_string"], *address)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return await asyncio.shield(found)
        self._kept[key] = made = asyncio.get_running_loop().create_future()
        try:
            answer = await self._make(scope)
        except BaseException as error:
            self._kept.pop(key, None)
            made.set_exception(error if isinstance(error, Exception) else RuntimeError("was not finished"))
            made.exception()  # nobody else may wait for it
            raise
        made.set_result(answer)
        if answer.status != 200:
            self._kept.pop(key, None)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return answer

    async def _make(self, scope: Message) -> _Answer:
        start: Message = {}
        body: list[bytes] = []

        requests: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def no_body() -> Message:
            if not requests:
                await asyncio.Event().wait()  # until whoever listens for the client's leave is cancelled
            return requests.pop()

        async def collect(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                body.append(message.get("body", b""))

        await self.app(scope, no_body, collect)
        headers = tuple((bytes(name), bytes(value)) for name, value in start["headers"])
        return _Answer(int(start["status"]), headers, b"".join(body))


def _with_address_only(scope: Message) -> Message:
    """The request without anything that the answer does not depend on: one answer serves all visitors."""
    headers = [(name.encode(), header_of(scope, name).encode("latin-1")) for name in ADDRESS_HEADERS]
    encoding = b"gzip" if "gzip" in header_of(scope, "accept-encoding").lower() else b"identity"
    query = scope.get("query_string", b"")
    return {
        **scope,
        "method": "GET",
        "query_string": query if query.lower() == ALL_ENDPOINTS.lower() else b"",
        "headers": [*(one for one in headers if one[1]), (b"accept-encoding", encoding)],
    }
