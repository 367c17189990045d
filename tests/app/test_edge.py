"""What the web server refuses before Gradio sees it."""

from __future__ import annotations

import asyncio
import json
import socket
from urllib.parse import urlsplit

import gradio as gr
import httpx
import pytest
from fastapi.testclient import TestClient

from app import text
from app.edge import EdgeState, RequestGuard, names_web_address
from app.limits import LIMITS, Limits
from app.metrics import Metrics
from app.routes import allowed_routes
from app.storage import Storage
from app.uploads_route import upload_route

META = {"_type": "gradio.FileData"}


@pytest.mark.parametrize(
    "path",
    [
        "http://example.org/a.jpg",
        "https://example.org/a.jpg",
        "HTTP://example.org/a.jpg",
        " http://example.org/a.jpg",
        "ht\ntp://example.org/a.jpg",
        "http:/example.org/a.jpg",
        "http://[broken",
    ],
)
def test_a_file_reference_to_the_web_is_seen_however_it_is_written(path):
    assert names_web_address(json.dumps({"data": [[{"image": {"path": path, "meta": META}}]]}).encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"data": [{"path": "/up/a.jpg", "url": "http://127.0.0.1/a.jpg"}]}',
        b'{"data": ["http://example.org"]}',
        b"not json",
        b"[" * 100_000,
        b'{"path": 3}',
        b"",
    ],
)
def test_other_requests_pass(body):
    assert not names_web_address(body)


def test_the_server_refuses_to_fetch_from_the_web(server):
    data = [[{"path": "https://example.org/cat.jpg", "meta": META}], "cat, dog"]
    answer = httpx.post(f"{server.address}/gradio_api/call/predict", json={"data": data}, timeout=60)
    assert (answer.status_code, answer.json()["detail"]) == (400, text.page.NO_ADDRESSES)


@pytest.mark.parametrize("address", ["http://127.0.0.1/", "https%3A//example.org/"])
def test_the_server_is_no_proxy(server, address):
    answer = httpx.get(f"{server.address}/gradio_api/file={address}", timeout=60)
    assert answer.status_code == 403


def test_a_request_too_large_to_come_from_the_page_is_refused(server):
    body = json.dumps({"data": [[], "x" * LIMITS.request_bytes]})
    headers = {"content-type": "application/json"}
    answer = httpx.post(
        f"{server.address}/gradio_api/call/predict", content=body, headers=headers, timeout=60
    )
    assert (answer.status_code, answer.json()["detail"]) == (413, text.page.TOO_LARGE)


def test_a_file_of_the_server_that_nobody_uploaded_is_not_read(server):
    data = [[{"path": __file__, "meta": META}], "cat, dog"]
    call = f"{server.address}/gradio_api/call/predict"
    event = httpx.post(call, json={"data": data}, timeout=60).json()["event_id"]
    said = httpx.get(f"{call}/{event}", timeout=60).text
    assert "event: error" in said
    assert "seems to be" not in said, "the file was opened"


def test_files_outside_the_examples_are_not_served(server):
    assert httpx.get(f"{server.address}/gradio_api/file={__file__}", timeout=60).status_code == 403


MEGABYTE = 1 << 20
BOUNDARY = b"--edge\r\n"
FORM = {"content-type": "multipart/form-data; boundary=edge"}


def part(nbytes):
    head = b'Content-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    return BOUNDARY + head + b"x" * nbytes + b"\r\n"


@pytest.fixture
def guarded(tmp_path):
    """Gradio's own server behind the guard, with uploads of at most a megabyte; and the visitors' folder."""
    limits = Limits(upload_megabytes=1, body_seconds=5)
    storage, metrics = Storage.open(tmp_path), Metrics()
    with gr.Blocks() as page:
        gr.File()
    own = [upload_route(page, storage, limits=limits, metrics=metrics)]
    state = EdgeState(allowed_routes(page, own=own), metrics=metrics, limits=limits)
    app = gr.routes.App.create_app(page, app_kwargs={"routes": own})
    yield RequestGuard(app, state=state), storage.folder
    storage.close()


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]


def test_an_upload_that_says_it_is_too_large_is_refused_before_a_byte_of_it_is_kept(guarded):
    guard, folder = guarded
    files = [("files", (f"{number}.png", b"x" * (MEGABYTE // 4))) for number in range(5)]
    answer = TestClient(guard).post("/gradio_api/upload", files=files)
    assert (answer.status_code, answer.json()["detail"]) == (413, text.page.UPLOAD_TOO_LARGE)
    assert files_in(folder) == []


def test_one_that_does_not_say_so_is_refused_as_it_comes_and_leaves_nothing(guarded):
    guard, folder = guarded
    parts = [part(MEGABYTE // 4)] * 5 + [b"--edge--\r\n"]
    answer, took = ask_by(guard, parts)
    assert (answer["status"], took) == (413, 4), "the part after the one that is too much is not asked for"
    assert files_in(folder) == []


def test_one_that_breaks_off_leaves_nothing(guarded):
    guard, folder = guarded
    ask_by(guard, [part(1000), part(1000)])
    assert files_in(folder) == []


def test_one_within_the_limit_is_kept(guarded):
    guard, folder = guarded
    answer, _ = ask_by(guard, [part(1000), b"--edge--\r\n"], ends=True)
    assert answer["status"] == 200
    assert [path.stat().st_size for path in files_in(folder)] == [1000]


def ask_by(guard, chunks, *, ends=False):
    """Send the chunks one by one, of no told length; the start of the answer, and how many were taken."""
    told, taken = [], []

    async def receive():
        if len(taken) == len(chunks):
            return {"type": "http.disconnect"}
        taken.append(chunks[len(taken)])
        more = not (ends and len(taken) == len(chunks))
        return {"type": "http.request", "body": taken[-1], "more_body": more}

    async def send(message):
        told.append(message)

    path, headers = "/gradio_api/upload", [(name.encode(), value.encode()) for name, value in FORM.items()]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
    scope["headers"].append((b"host", b"test"))
    scope |= {"query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1"}
    asyncio.run(guard(scope | {"server": ("test", 80), "client": ("test", 1)}, receive, send))
    return told[0] if told else None, len(taken)


def test_the_server_that_strangers_use_has_the_limit_too(server):
    host = urlsplit(server.address)
    length = (LIMITS.upload_megabytes << 20) + 1
    head = f"POST /gradio_api/upload HTTP/1.1\r\nHost: {host.netloc}\r\nContent-Length: {length}\r\n"
    with socket.create_connection((host.hostname, host.port), timeout=60) as line:
        line.sendall(f"{head}Content-Type: {FORM['content-type']}\r\n\r\n".encode())
        assert line.recv(100).startswith(b"HTTP/1.1 413")
