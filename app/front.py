"""The page's first answer: what a shared link shows of it, its card, and everything compressed.

Gradio's own HTML calls every app "Gradio" where a link to it is shown. Those tags are replaced as the page is
served, with addresses of the host that was asked, and the card that they name is served here.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from html import escape
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from app import text

__all__ = ["CARD_ROUTE", "FrontPage", "card_routes", "social_tags", "with_social_tags"]

CARD_ROUTE = "/card.png"
CARD = Path(__file__).resolve().parent.parent / "assets" / "figures" / "card.png"
CARD_SIZE = (1200, 630)  # pixels, as the networks show it

_SOCIAL = re.compile(r"<meta\s+(?:property=\"og:[^\"]*\"|name=\"twitter:[^\"]*\")[^>]*>\s*", re.DOTALL)
_LANGUAGE = re.compile(r"(<html[^>]*\blang=)\"[^\"]*\"")
_DESCRIPTION = re.compile(r"<meta\s+name=\"description\"[^>]*>\s*", re.DOTALL)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class FrontPage:
    """ASGI middleware: gives the page its social tags."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:  # noqa: D102 - ASGI's own name
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return await self.app(scope, receive, send)
        if scope["path"] != "/":
            return await self.app(scope, receive, send)
        return await self._tag_page(scope, receive, send)

    async def _tag_page(self, scope: Message, receive: Receive, send: Send) -> None:
        """Hold the page back until it is whole, and send it with our tags."""
        start: Message = {}
        body: list[bytes] = []

        async def hold(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
                return
            body.append(message.get("body", b""))
            if message.get("more_body", False):
                return
            page = b"".join(body)
            headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
            if dict(start["headers"]).get(b"content-type", b"").startswith(b"text/html"):
                page = with_social_tags(page.decode("utf-8"), address=_address(scope)).encode("utf-8")
            headers.append((b"content-length", str(len(page)).encode()))
            await send({**start, "headers": headers})
            await send({"type": "http.response.body", "body": page})

        await self.app(scope, receive, hold)


def card_routes() -> list[Route]:
    """The route of the card that the tags name; none where there is no card."""

    async def card(_: Request) -> Response:
        return FileResponse(CARD, media_type="image/png", headers={"cache-control": "public, max-age=86400"})

    return [Route(CARD_ROUTE, card, methods=["GET", "HEAD"])] if CARD.is_file() else []


def with_social_tags(page: str, *, address: str) -> str:
    """The page with our social tags in place of those that it has, and the language that it speaks."""
    bare = _DESCRIPTION.sub("", _SOCIAL.sub("", page))
    bare = _LANGUAGE.sub(rf'\g<1>"{text.language.LANGUAGE}"', bare, count=1)
    return bare.replace("</head>", f"{social_tags(address)}</head>", 1)


def social_tags(address: str) -> str:
    """The tags for a page at this address; they name the card where there is one."""
    title, about = text.page.TITLE, text.page.LEAD
    tags = {
        ("name", "description"): about,
        ("property", "og:type"): "website",
        ("property", "og:title"): title,
        ("property", "og:description"): about,
        ("property", "og:url"): address,
        ("name", "twitter:title"): title,
        ("name", "twitter:description"): about,
        ("name", "twitter:card"): "summary_large_image",
    }
    if CARD.is_file():
        width, height = CARD_SIZE
        tags |= {
            ("property", "og:image"): f"{address}{CARD_ROUTE}",
            ("property", "og:image:width"): str(width),
            ("property", "og:image:height"): str(height),
            ("name", "twitter:image"): f"{address}{CARD_ROUTE}",
        }
    return "".join(
        f'<meta {kind}="{name}" content="{escape(value)}">\n' for (kind, name), value in tags.items()
    )


def _address(scope: Message) -> str:
    """Where the page was asked for; a proxy in front may tell that it speaks https."""
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    scheme = "https" if headers.get(b"x-forwarded-proto") == "https" else scope.get("scheme", "http")
    host = re.sub(r"[^\w.:\[\]-]", "", headers.get(b"host", "localhost"))
    return f"{scheme}://{host}{scope.get('root_path', '').rstrip('/')}"
