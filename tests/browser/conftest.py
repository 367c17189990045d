"""A real Chromium against the real server. Every page is watched: it asks no one else, and says no error."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from PIL import Image

from tests.browser.steps import wait_until_it_hears
from tests.drawn import COLOURS, square
from tests.serving import ROOT, shared_server

WAIT = 60  # seconds for any one thing on the page: a quiet machine needs a few, and nothing may wait for ever
READY = ("#own", "#lessons [data-example]")  # the page comes in pieces
CLOSING = "AbortError: signal is aborted"  # Gradio's own script says so where a page that listens is closed
LEAVING = ("AbortError", "Connection errored out")  # of requests that a page had open when it was left


@pytest.fixture(scope="session")
def server():
    return shared_server()


@pytest.fixture
def visit(chromium, server):
    """Open the page, at a width and in a colour scheme; afterwards nothing may have gone wrong unseen."""
    contexts, complaints = [], []

    def open_page(*, width=1280, scheme="light", query="", ready=READY, address=server.address, leaves=False):
        def complain(sentence):
            if CLOSING not in sentence and not (leaves and any(sign in sentence for sign in LEAVING)):
                complaints.append(sentence)

        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(WAIT * 1000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complain(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complain(str(error)))
        page.on("request", lambda request: complaints.extend(_strange(request.url, address)))
        wait_until_it_hears(page, lambda: page.goto(address + query))
        for part in ready:
            page.wait_for_selector(part)
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


@pytest.fixture
def colours(tmp_path):
    """Noisy squares by colour: files to teach with, and files to try."""

    def save(use, name, seed):
        path = tmp_path / f"{use}-{name}-{seed}.png"
        Image.fromarray(square(COLOURS[name], seed=seed, side=64)).save(path)
        return str(path)

    adapt_few_shot = {name: [save("teach", name, seed) for seed in range(3)] for name in ("red", "blue")}
    return adapt_few_shot, [save("try", name, 9) for name in ("red", "blue")]


@pytest.fixture
def archive(colours, tmp_path):
    """The same as a zip with one folder per class."""
    path = tmp_path / "colours.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name, files in colours[0].items():
            for place, file in enumerate(files):
                packed.write(file, f"{name}/{place}.png")
    return path


@pytest.fixture
def other_archive(tmp_path):
    """Another zip of two colours."""
    path = tmp_path / "greens.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name, colour in {"green": (20, 90, 30), "grey": (120, 120, 120)}.items():
            for seed in range(3):
                file = tmp_path / f"{name}-{seed}.png"
                Image.fromarray(square(colour, seed=seed, side=64)).save(file)
                packed.write(file, f"{name}/{seed}.png")
    return path


@pytest.fixture(scope="session")
def artefacts():
    folder = Path(ROOT) / "artefacts"
    folder.mkdir(exist_ok=True)
    return folder


def _strange(url, address):
    return [] if url.startswith((address, "data:", "blob:")) else [f"a request to {url}"]
