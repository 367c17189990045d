"""Every state at a desk's and a phone's width, light and dark. A picture of each is kept in `artefacts/`."""

from __future__ import annotations

import pytest

from app import text
from tests.browser.steps import ask_about, panel, start_empty, wait_for_images, wait_until_still
from tests.serving import ROOT

pytestmark = pytest.mark.browser

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
# Rules that Gradio's own components break; the last two only in its drop zone.
OF_GRADIO = {"aria-prohibited-attr", "nested-interactive"}
OF_ITS_DROP_ZONE = OF_GRADIO | {"label-content-name-mismatch", "image-redundant-alt"}
LOOK = """() => axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
    violations.flatMap(({ id, nodes }) => nodes.map(({ html, target }) => {
        const it = document.querySelector(target[target.length - 1]);
        return [id, html, Boolean(it && it.closest(".at-drop"))];
    })))"""

# What is pressed and lower than 44 pixels; a radio button or a tick is pressed with its label.
SMALL_TARGETS = """() => [...document.querySelectorAll(
        "button, select, summary, .at-link a, .at-switch, label:has(input[type=radio]), "
        + "input:not([type=radio], [type=checkbox], [type=file])")]
    .filter((one) => one.offsetParent !== null && getComputedStyle(one).visibility === "visible")
    .map((one) => [one, one.getBoundingClientRect()])
    .filter(([one, { width, height }]) => width > 1 && height > 1 && height < 44)
    .map(([one, { height }]) => [one.outerHTML.slice(0, 120), height])"""


@pytest.fixture
def looked_at(artefacts):
    """Check what is in sight, and keep a picture of it."""

    def look(page, name):
        wait_for_images(page)
        wait_until_still(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is too wide"
        page.screenshot(path=artefacts / f"{name}.png", full_page=True)
        if AXE.is_file():
            assert broken_rules(page) == []

    return look


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
)
def test_every_state_fits_its_width_is_accessible_and_pictured(visit, looked_at, width, scheme):
    page = visit(width=width, scheme=scheme)
    look = f"{width}-{scheme}"
    if AXE.is_file():
        page.add_script_tag(path=AXE)
    looked_at(page, f"page-{look}")
    page.click("#model-chip")
    page.locator("#use-model").wait_for()
    looked_at(page, f"model-{look}")
    page.click("#model-chip")
    panel(page, text.trying.TAB)
    for name, short, part in (
        (text.result.TAB_COMPARE, "try", "#compare .at-pair"),
        (text.result.TAB_INSIDE, "inside", "#effects tbody tr"),
        (text.result.TAB_TAKE, "take", "#share"),
    ):
        panel(page, name)
        page.locator(part).first.wait_for()
        looked_at(page, f"{short}-{look}")
    panel(page, text.page.EXPERIMENTS)
    for name, short, part in (
        (text.forget.TAB, "forget", "#forget-numbers svg"),
        (text.inside.BANK_TAB, "bank", "#bank-task-vectors svg:visible"),
    ):
        panel(page, name)
        page.locator(part).first.wait_for()
        looked_at(page, f"{short}-{look}")
    panel(page, text.teach.TAB)
    start_empty(page)
    looked_at(page, f"teach-{look}")
    page.locator("#labels").get_by_text(text.teach.UNLABELLED).click()
    page.locator("#unlabelled-adapt").wait_for()
    looked_at(page, f"unlabelled-{look}")
    panel(page, text.trying.TAB)
    ask_about(page, words="cat")
    page.locator("#alert [role=alert]").wait_for()
    looked_at(page, f"ask-{look}")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_screen_says_little_and_has_one_button(visit, width):
    page = visit(width=width)
    wait_for_images(page)
    height = page.viewport_size["height"]
    above = page.evaluate(
        """(height) => [...document.querySelectorAll("h1, h2, h3, p, label, button, figcaption, small")]
            .filter((one) => one.offsetParent !== null && one.getBoundingClientRect().top < height)
            .filter((one) => !one.parentElement.closest("h1, h2, h3, p, label, button, figcaption"))
            .map((one) => one.innerText).join(" ")""",
        height,
    )
    assert len(above.split()) <= 60, above
    assert page.locator("button.at-start:visible").count() == 1
    switch = page.locator("#at-switch")
    assert page.locator(".at-with").is_visible()
    switch.uncheck()
    assert page.locator(".at-without").is_visible()
    assert not page.locator(".at-with").is_visible()


def test_on_a_phone_everything_to_press_is_large_enough_for_a_finger(visit):
    page = visit(width=390)
    assert page.evaluate(SMALL_TARGETS) == []
    page.click("#lessons [data-example='1']")
    page.locator("#compare select").first.wait_for()
    for name in (text.result.TAB_COMPARE, text.result.TAB_INSIDE, text.result.TAB_TAKE):
        panel(page, name)
        wait_until_still(page)
        assert page.evaluate(SMALL_TARGETS) == [], name
    panel(page, text.teach.TAB)
    page.locator("#pictures-1 .thumbnail-item").first.wait_for()
    page.click("#settings button")
    page.locator("#settings input[type=range]").wait_for()
    assert page.evaluate(SMALL_TARGETS) == []


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
