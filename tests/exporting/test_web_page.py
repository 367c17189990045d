"""The exported page in a real Chromium, opened from disk: it answers as the library does and asks nobody."""

from __future__ import annotations

import base64

import pytest

import atlas_engine as atlas
from atlas_engine.errors import ExportError
from atlas_engine.exporting.formats import expected_nbytes
from atlas_engine.exporting.web_page import RUNTIME_FOLDER, find_web_runtime
from tests.engines import tiny_engine
from tests.exporting.models import make_recipe, small_bank

SECONDS = 60_000


@pytest.fixture(scope="module")
def page_file(engine, examples, tmp_path_factory):
    """The apples as a page, in eight bits."""
    try:
        find_web_runtime()
    except ExportError as error:
        pytest.skip(str(error))
    recipe = atlas.Recipe.load(examples / "apples" / "recipe.atlas.safetensors")
    written = engine.export(recipe, tmp_path_factory.mktemp("page") / "apples", format="html", int8=True)
    assert [name for name, _ in written.files] == ["index.html"]
    told = expected_nbytes(engine.classifier(recipe), format="html", int8=True)
    assert told == pytest.approx(written.nbytes, rel=0.2)
    return written.folder / "index.html"


@pytest.fixture
def page(chromium, page_file):
    """The page in a browser of its own; afterwards nothing may have been asked of anybody, or gone wrong."""
    asked, complaints = [], []
    opened = chromium.new_page()
    opened.set_default_timeout(SECONDS)
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(page_file.as_uri())
    opened.wait_for_selector("body[data-state=ready]")
    yield opened
    opened.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(("blob:", "data:"))] == [page_file.as_uri()]


def test_chosen_dropped_and_seen_images_are_answered(page, engine, examples):
    files = sorted((examples / "apples" / "try").rglob("1.jpg"))
    recipe = atlas.Recipe.load(examples / "apples" / "recipe.atlas.safetensors")
    wanted = engine.compare(files, recipe).adapted
    for file, label in zip(files, wanted.labels, strict=True):
        page.set_input_files("#file", file)
        page.wait_for_function("name => document.querySelector('#answer').textContent === name", arg=label)
    assert page.locator("#ranking li").count() == 5
    # a file that is dropped
    page.evaluate(
        """async data => {
            const bytes = Uint8Array.from(atob(data), letter => letter.charCodeAt(0));
            const transfer = new DataTransfer();
            transfer.items.add(new File([bytes], "dropped.jpg", { type: "image/jpeg" }));
            const how = { dataTransfer: transfer, bubbles: true, cancelable: true };
            document.body.dispatchEvent(new DragEvent("drop", how));
        }""",
        base64.b64encode(files[0].read_bytes()).decode(),
    )
    page.wait_for_function(
        "name => document.querySelector('#answer').textContent === name", arg=wanted.labels[0]
    )
    # the camera, which answers until it is stopped
    page.click("#camera")
    page.wait_for_selector("#video:not([hidden])")
    page.wait_for_function(
        "before => document.querySelector('#ranking').innerHTML !== before",
        arg=page.locator("#ranking").inner_html(),
    )
    page.click("#camera")
    page.wait_for_selector("#video", state="hidden")


def test_a_file_that_is_no_image_is_refused_in_a_sentence(page, tmp_path):
    (tmp_path / "notes.jpg").write_text("no image")
    page.set_input_files("#file", tmp_path / "notes.jpg")
    page.wait_for_selector("body[data-state=refused]")
    assert page.locator("#answer").inner_text().startswith("This file cannot be read as an image. Save it")


def test_without_its_runtime_the_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv(RUNTIME_FOLDER, str(tmp_path))
    recipe = make_recipe()
    with pytest.raises(ExportError, match=r"needs onnxruntime-web, .* Run: npm install onnxruntime-web@"):
        tiny_engine().export(recipe, tmp_path / "page", format="html", bank=small_bank())
    assert not list(tmp_path.iterdir())
