"""A real Chromium against the real server. Every page is watched: it asks no one else, and says no error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.serving import PATIENCE, ROOT, shared_server

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("Chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server():
    return shared_server()


@pytest.fixture
def visit(chromium, server):
    """Open the page, at a width and in a colour scheme; afterwards nothing may have gone wrong unseen."""
    contexts, complaints = [], []

    def open_page(*, width=1280, scheme="light", query=""):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(PATIENCE * 1000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.extend(_strange(request.url, server.address)))
        page.goto(server.address + query)
        page.wait_for_selector(".at-run")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def draw(tmp_path):
    """A picture of one colour, saved under a name."""

    def save(name, colour="red", size=(96, 96)):
        Image.new("RGB", size, colour).save(tmp_path / name)
        return str(tmp_path / name)

    return save


@pytest.fixture(scope="session")
def artefacts():
    folder = Path(ROOT) / "artefacts"
    folder.mkdir(exist_ok=True)
    return folder


def _strange(url, address):
    return [] if url.startswith((address, "data:", "blob:")) else [f"a request to {url}"]
