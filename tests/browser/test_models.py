"""Choosing a model in a real browser, at both widths: refused, made ready with its bank, used, given back."""

from __future__ import annotations

import pytest

import atlas_engine as atlas
from app import text
from app.session import Engines, open_engine
from atlas_engine import library
from tests.browser.steps import ask_about, try_empty, wait_for_answers
from tests.serving import served
from tests.standins import TASKS, stand_in

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of Gradio's own sockets, when it is closed
]

NAME = "tiny-standin/one"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The page on a server whose hub holds one small model with three checkpoints."""
    offer = stand_in(tmp_path_factory.mktemp("hub"))

    def prepare(name):
        if name != NAME:
            raise atlas.AtlasError(f"'{name}' is not at this hub. Take another.")
        return library.prepare(offer, cache=False)

    opened = open_engine()
    with opened.engine, served(opened, Engines(opened.engine, name="bundled", prepare=prepare)) as live:
        yield live.address.rstrip("/")


def use(page, name):
    field = page.locator("#model input")
    field.fill(name)
    field.press("Enter")
    page.click("#use-model")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_model_is_refused_another_is_made_ready_and_answers_and_the_first_comes_back(
    visit, address, draw, artefacts, width
):
    page = visit(width=width, address=address)
    assert page.locator("#model-chip").inner_text() == text.model.chip("bundled")
    page.click("#model-chip")
    for wrong, said in (("../etc/passwd", "cannot be chosen"), ("tiny-standin/two", "not at this hub")):
        use(page, wrong)
        alert = page.locator("#model-alert [role=alert]").filter(has_text=said)
        alert.filter(has_text="bundled goes on answering you").wait_for()
    use(page, NAME)
    page.locator("#model-status").get_by_text(text.model.ready(NAME)).wait_for()
    assert page.locator("#model-alert [role=alert]").count() == 0
    assert f"{len(TASKS)} vectors" in page.locator("#model-card").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=artefacts / f"model-chosen-{width}.png", full_page=True)
    assert page.locator("#model-chip").inner_text() == text.model.chip(NAME), "what really answers"
    try_empty(page)
    page.locator("#run").get_by_text(text.result.WAITING).wait_for()  # what the other model learned is gone
    ask_about(page, draw("red.png"), words="red, blue")
    wait_for_answers(page, 1)
    use(page, "bundled")
    page.locator("#model-status").get_by_text(text.model.ready("bundled")).wait_for()
