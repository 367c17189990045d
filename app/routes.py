"""The requests that the server takes: exact routes and methods, and what their bodies may be.

The table follows from the page: each endpoint that it declares has its routes, and what a page without such a
component or event does not need (streams, functions of components, MCP) is not there. Everything else that
Gradio would answer is refused (`app.edge`): recordings that it hands to ffmpeg, deep links, reloading, files
by a second spelling, proxies, monitoring.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import gradio as gr
from starlette.routing import Route

__all__ = ["AllowedRoute", "BodyKind", "allowed_routes", "find_route"]

API = "/gradio_api"
SESSION = r"[\w-]{1,64}"  # as Gradio's clients make them: letters and digits
NAME = r"[\w-]{1,80}"
FILE = r"[^?\x00]{1,1000}"


class BodyKind(Enum):
    """What a request may carry."""

    NONE = "nothing"
    JSON = "JSON within the limits"
    FORM = "files as multipart/form-data"


@dataclass(frozen=True)
class AllowedRoute:
    """A route and its methods. `name` is what metrics call it: never a visitor's words."""

    name: str
    methods: frozenset[str]
    pattern: re.Pattern[str]
    body: BodyKind = BodyKind.NONE
    starts_work: bool = False  # refused while the server drains


def allowed_routes(
    page: gr.Blocks, *, own: Sequence[Route] = (), mcp: bool = False
) -> tuple[AllowedRoute, ...]:
    """The routes of a page, of our `own` handlers, and of MCP where it is served."""
    return (
        *_page_routes(),
        *_queue_routes(),
        *_endpoint_routes(page),
        *(_own_route(route) for route in own),
        *([_mcp_route()] if mcp else []),
    )


def find_route(
    routes: Iterable[AllowedRoute], path: str, method: str
) -> tuple[AllowedRoute | None, frozenset[str]]:
    """The route of a request, or None and the methods that this path has."""
    methods: frozenset[str] = frozenset()
    for route in routes:
        if route.pattern.fullmatch(path):
            if method in route.methods:
                return route, route.methods
            methods |= route.methods
    return None, methods


def _page_routes() -> Iterable[AllowedRoute]:
    """The page itself: its HTML, scripts and styles, and files that it shows."""
    yield _route("page", "/", "GET", "HEAD")
    yield _route("config", "/config/?")
    yield _route("style", f"({API})?/theme[.]css")
    yield _route("asset", f"/(assets|static|svelte)/{FILE}")
    yield _route("icon", r"/favicon[.]ico|/robots[.]txt|/manifest[.]json|/pwa_icon(/\d{1,4})?")
    yield _route("info", f"{API}/(info/?|openapi[.]json|app_id/?|startup-events)")
    yield _route("file", f"{API}/file={FILE}", "GET", "HEAD")


def _queue_routes() -> Iterable[AllowedRoute]:
    """What each event of the page goes through."""
    yield _route("heartbeat", f"{API}/heartbeat/{SESSION}")
    yield _route("queue/data", f"{API}/queue/data")
    yield _route("queue/join", f"{API}/queue/join", "POST", body=BodyKind.JSON, starts_work=True)
    yield _route("cancel", f"{API}/(cancel|reset/?)", "POST", body=BodyKind.JSON)
    yield _route("upload_progress", f"{API}/upload_progress")


def _endpoint_routes(page: gr.Blocks) -> Iterable[AllowedRoute]:
    """The endpoints that the page declares, and what its events and components need besides."""
    events = [event for event in page.fns.values() if event.fn is not None]
    public = [event for event in events if event.api_visibility != "private" and event.api_name]
    names = sorted({re.escape(str(event.api_name)) for event in public})
    at_once = sorted({re.escape(str(event.api_name)) for event in public if not event.queue})
    if names:
        call = f"{API}/call/(v2/)?({'|'.join(names)})"
        yield _route("call", f"{call}/?", "POST", body=BodyKind.JSON, starts_work=True)
        yield _route("call/result", f"{call}/{SESSION}")
    if at_once:
        yield _route("run", f"{API}/(run|api)/({'|'.join(at_once)})/?", "POST", body=BodyKind.JSON)
    if any(not event.queue for event in events):
        yield _route("run", f"{API}/run/predict/?", "POST", body=BodyKind.JSON)  # as the page calls them
    if any(event.connection == "stream" for event in events):
        yield _route("stream", f"{API}/stream/{SESSION}(/close)?", "POST", body=BodyKind.JSON)
    if any(_has_server_functions(block) for block in page.blocks.values()):
        yield _route("component", f"{API}/component_server/?", "POST", body=BodyKind.JSON)


def _has_server_functions(block: object) -> bool:
    kind = type(block)
    return any(getattr(getattr(kind, name, None), "_is_server_fn", False) for name in dir(kind))


def _own_route(route: Route) -> AllowedRoute:
    """A handler of our own. One that takes files says so by `takes_files`; else a POST is JSON."""
    methods = frozenset(route.methods or {"GET"})
    body = BodyKind.FORM if getattr(route.endpoint, "takes_files", False) else BodyKind.JSON
    starts_work = "POST" in methods
    return AllowedRoute(
        route.path.strip("/"),
        methods,
        route.path_regex,
        body if starts_work else BodyKind.NONE,
        starts_work,
    )


def _mcp_route() -> AllowedRoute:
    pattern = re.compile(f"{API}/mcp(/(schema|sse|messages)?/?)?")
    return AllowedRoute("mcp", frozenset({"GET", "POST", "DELETE"}), pattern, BodyKind.JSON, starts_work=True)


def _route(
    name: str, pattern: str, *methods: str, body: BodyKind = BodyKind.NONE, starts_work: bool = False
) -> AllowedRoute:
    return AllowedRoute(name, frozenset(methods or ("GET",)), re.compile(pattern), body, starts_work)
