"""What the web server refuses before Gradio sees it."""

from __future__ import annotations

import json

import httpx
import pytest

from app import text
from app.guard import names_web_address
from app.limits import LIMITS

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
    assert (answer.status_code, answer.json()["detail"]) == (400, text.NO_ADDRESSES)


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
    assert (answer.status_code, answer.json()["detail"]) == (413, text.TOO_LARGE)


def test_a_file_of_the_server_that_nobody_uploaded_is_not_read(server):
    data = [[{"path": __file__, "meta": META}], "cat, dog"]
    call = f"{server.address}/gradio_api/call/predict"
    event = httpx.post(call, json={"data": data}, timeout=60).json()["event_id"]
    said = httpx.get(f"{call}/{event}", timeout=60).text
    assert "event: error" in said
    assert "seems to be" not in said, "the file was opened"


def test_files_outside_the_examples_are_not_served(server):
    assert httpx.get(f"{server.address}/gradio_api/file={__file__}", timeout=60).status_code == 403
