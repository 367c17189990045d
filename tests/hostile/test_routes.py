"""Requests that no page makes, against the running server: each is refused with a sentence."""

from __future__ import annotations

import json

import gradio as gr
import httpx
import pytest
from starlette.routing import Route

from app import text
from app.limits import LIMITS
from app.routes import BodyKind, allowed_routes, find_route
from tests.serving import shared_server

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def address():
    return shared_server().address


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/gradio_api/process_recording"),
        ("GET", "/gradio_api/deep_link?session_hash=a"),
        ("GET", "/gradio_api/dev/reload"),
        ("GET", "/gradio_api/file/etc/passwd"),
        ("GET", "/gradio_api/proxy=https://example.org/"),
        ("GET", "/monitoring"),
        ("GET", "/monitoring/summary"),
        ("POST", "/login"),
        ("GET", "/gradio_api/token"),
        ("POST", "/gradio_api/component_server"),
        ("POST", "/gradio_api/stream/a"),
        ("POST", "/gradio_api/vibe-edit"),
        ("GET", "/gradio_api/runs"),
        ("POST", "/gradio_api/run/upload"),
        ("POST", "/gradio_api/api/predict"),
        ("POST", "/gradio_api/run/adapt"),
        ("POST", "/gradio_api/call/no_such_endpoint"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("GET", "/../../etc/passwd"),
        ("GET", "//"),
    ],
)
def test_what_the_page_does_not_need_is_not_there(address, method, path):
    answer = httpx.request(method, address + path, content=b"{}" if method == "POST" else None, timeout=60)
    assert (answer.status_code, answer.json()["detail"]) == (404, text.server.NOT_HERE)


def test_a_method_that_a_route_does_not_have_is_told_which_it_has(address):
    for method, path in (("DELETE", "/"), ("PUT", "/gradio_api/queue/join"), ("GET", "/gradio_api/upload")):
        answer = httpx.request(method, address + path, timeout=60)
        assert answer.status_code == 405
        assert answer.headers["allow"]


def test_json_to_the_door_for_files_is_refused_unread(address):
    """It used to reach an event by its number, with 400 MiB, and the fetcher of web addresses."""
    body = json.dumps({"fn_index": 0, "data": ["x" * 100]})
    answer = httpx.post(f"{address}/gradio_api/upload", content=body, headers=JSON, timeout=60)
    assert (answer.status_code, answer.json()["detail"]) == (415, text.server.NOT_MULTIPART)


@pytest.mark.parametrize(
    "path", ["queue/join", "run/predict", "run/stop", "call/predict", "call/v2/predict", "cancel", "reset"]
)
def test_json_has_one_limit_wherever_it_is_posted(address, path):
    body = json.dumps({"data": ["x" * LIMITS.request_bytes], "session_hash": "a", "fn_index": 0})
    answer = httpx.post(f"{address}/gradio_api/{path}", content=body, headers=JSON, timeout=60)
    assert (answer.status_code, answer.json()["detail"]) == (413, text.page.TOO_LARGE)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 5000,
        b"{",
        b"\xff\xfe",
        b'{"data": ' + b"[" * 40 + b"]" * 40 + b"}",
        json.dumps({"data": [0] * (LIMITS.json_values + 1)}).encode(),
        json.dumps({"data": [{"path": "a"}] * (LIMITS.json_files + 1)}).encode(),
        json.dumps({"data": [], "session_hash": "s" * 1000}).encode(),
        json.dumps({"data": [], "session_hash": {"a": 1}}).encode(),
        json.dumps({"data": [], "event_id": ["e"]}).encode(),
    ],
)
def test_json_that_is_deep_wide_broken_or_has_long_ids_is_refused(address, body):
    answer = httpx.post(f"{address}/gradio_api/queue/join", content=body, headers=JSON, timeout=60)
    assert (answer.status_code, answer.json()["detail"]) == (400, text.server.NOT_JSON)


def test_ids_in_addresses_are_short(address):
    for path in ("queue/data?session_hash=", "upload_progress?upload_id="):
        assert httpx.get(f"{address}/gradio_api/{path}{'x' * 100}", timeout=60).status_code == 400
    assert httpx.get(f"{address}/gradio_api/heartbeat/{'x' * 100}", timeout=60).status_code == 404


def test_another_host_name_is_refused_so_that_no_page_elsewhere_can_borrow_this_machine(address):
    answer = httpx.get(address, headers={"host": "evil.example:7860"}, timeout=60)
    assert (answer.status_code, answer.json()["detail"]) == (421, text.server.OTHER_HOST)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_another_pages_requests_are_refused(address, origin):
    answer = httpx.post(
        f"{address}/gradio_api/call/models", json={"data": []}, headers={"origin": origin}, timeout=60
    )
    assert (answer.status_code, answer.json()["detail"]) == (403, text.server.OTHER_ORIGIN)


def test_the_pages_own_requests_are_let_in(address):
    answer = httpx.post(
        f"{address}/gradio_api/call/models", json={"data": []}, headers={"origin": address}, timeout=60
    )
    assert answer.status_code == 200


def test_every_answer_has_the_headers_that_keep_strangers_out(address):
    for path in ("/", "/config", "/no/such/page", "/gradio_api/info"):
        headers = httpx.get(address + path, timeout=60).headers
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'self' https://huggingface.co" in policy


def test_a_strangers_file_can_run_nothing(address):
    form = {"files": ("evil.html", b"<script>alert(1)</script>", "text/html")}
    (path,) = httpx.post(f"{address}/gradio_api/upload", files=form, timeout=60).json()
    answer = httpx.get(f"{address}/gradio_api/file={path}", timeout=60)
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["content-disposition"].startswith("attachment")


# ---- the table of routes follows from the page


def camera_page():
    with gr.Blocks() as page:
        image, names = gr.Image(streaming=True, sources=["webcam"]), gr.Textbox()
        image.stream(lambda frame: "", image, names, api_visibility="private")
        gr.Button().click(lambda name: name, names, names, api_name="try")
        gr.Button().click(lambda name: name, names, names, api_name="share", queue=False)
    return page


@pytest.mark.parametrize(
    "path",
    ["/gradio_api/call/try", "/gradio_api/call/share", "/gradio_api/run/share", "/gradio_api/stream/abc"],
)
def test_an_endpoint_that_a_page_declares_is_let_in_without_a_list(path):
    route, _ = find_route(allowed_routes(camera_page()), path, "POST")
    assert route is not None
    assert route.body is BodyKind.JSON


def test_a_route_of_our_own_is_let_in_and_one_that_takes_files_has_to_be_sent_a_form():
    async def correct(request): ...

    async def frames(request): ...

    frames.takes_files = True
    own = [Route("/correct", correct, methods=["POST"]), Route("/frames/{number}", frames, methods=["POST"])]
    routes = allowed_routes(camera_page(), own=own)
    assert find_route(routes, "/correct", "POST")[0].body is BodyKind.JSON
    assert find_route(routes, "/frames/3", "POST")[0].body is BodyKind.FORM
    assert find_route(routes, "/frames/3/4", "POST")[0] is None


def test_mcp_is_there_only_where_it_is_served():
    page = camera_page()
    assert find_route(allowed_routes(page), "/gradio_api/mcp/", "POST")[0] is None
    assert find_route(allowed_routes(page, mcp=True), "/gradio_api/mcp/", "POST")[0] is not None
