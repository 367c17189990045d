"""Every tab at a desk's and a phone's width, light and dark. A picture of each is kept in `artefacts/`."""

from __future__ import annotations

import pytest

from app import text
from app.examples import ASK_EXAMPLES
from tests.browser.steps import ask_about, panel, wait_for_answers, wait_for_pictures
from tests.serving import ROOT

pytestmark = pytest.mark.browser

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
# Rules that Gradio's own components break; the last two only in its drop zone.
OF_GRADIO = {"aria-prohibited-attr", "nested-interactive"}
OF_ITS_DROP_ZONE = OF_GRADIO | {"label-content-name-mismatch", "image-redundant-alt"}
RESULT = {text.result.TAB_COMPARE: "page", text.result.TAB_INSIDE: "inside", text.result.TAB_TAKE: "take"}
OTHERS = {
    text.unlabelled.TAB: ("roll", "#roll-adapt"),
    text.forget.TAB: ("forget", "#forget-numbers svg"),
    text.model.TAB: ("model", "#use-model"),
}
LOOK = """() => axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
    violations.flatMap(({ id, nodes }) => nodes.map(({ html, target }) => {
        const it = document.querySelector(target[target.length - 1]);
        return [id, html, Boolean(it && it.closest(".at-drop"))];
    })))"""


@pytest.fixture
def looked_at(artefacts):
    """Check what is in sight, and keep a picture of it."""

    def look(page, name):
        wait_for_pictures(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
        page.screenshot(path=artefacts / f"{name}.png", full_page=True)
        if AXE.is_file():
            assert broken_rules(page) == []

    return look


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
)
def test_every_tab_fits_its_width_is_accessible_and_pictured(visit, looked_at, width, scheme):
    page = visit(width=width, scheme=scheme)
    if AXE.is_file():
        page.add_script_tag(path=AXE)
    for name, short in RESULT.items():
        panel(page, name)
        if name == text.result.TAB_INSIDE:
            page.click("#bank button")
            page.locator("#bank-donors svg:visible").wait_for()
        looked_at(page, f"{short}-{width}-{scheme}")
    for name, (short, part) in OTHERS.items():
        panel(page, name)
        page.locator(part).wait_for()
        looked_at(page, f"{short}-{width}-{scheme}")
    panel(page, text.ask.TAB)
    example = ASK_EXAMPLES[0]
    page.get_by_role("button", name=text.ask.example_label(example.title, example.classes)).click()
    wait_for_answers(page, len(example.files))
    ask_about(page, words="cat")
    page.locator("#alert [role=alert]").wait_for()
    looked_at(page, f"ask-{width}-{scheme}")


def test_axe_is_there_to_look():
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm install --no-save axe-core")


def broken_rules(page):
    """What axe finds, without what is Gradio's own."""
    return [
        (rule, html)
        for rule, html, dropping in page.evaluate(LOOK)
        if rule not in (OF_ITS_DROP_ZONE if dropping else OF_GRADIO)
    ]
