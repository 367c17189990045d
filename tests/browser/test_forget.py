"""Forgetting in a real browser: the slider of the worked example, then two zips of one's own."""

from __future__ import annotations

import pytest

from app import text
from tests.browser.steps import panel, upload, wait_for_images

pytestmark = pytest.mark.browser

NUMBERS = "#forget-numbers"


@pytest.mark.parametrize("width", [1280, 390])
def test_the_slider_tells_both_accuracies_and_own_zips_are_forgotten(
    visit, archive, other_archive, artefacts, width
):
    page = visit(width=width)
    panel(page, text.page.EXPERIMENTS)
    before = page.locator(f"{NUMBERS} .at-shares").inner_text()
    assert text.forget.CONTROL_SIDE in before
    slide_to(page, 0)
    page.wait_for_function(
        "([part, before]) => document.querySelector(part).innerText !== before",
        arg=[f"{NUMBERS} .at-shares", before],
    )
    for told in page.locator(f"{NUMBERS} .at-shares .at-number").all_inner_texts():
        was, now = told.split(" → ")
        assert was == now
    page.locator("#forget-pictures .at-pair").nth(11).wait_for()
    upload(page, "#forget-target-zip", archive)
    page.wait_for_function("document.querySelectorAll('#forget-target .thumbnail-item').length === 6")
    upload(page, "#forget-control-zip", other_archive)
    page.wait_for_function("document.querySelectorAll('#forget-control .thumbnail-item').length === 6")
    page.click("#forget-start")
    page.locator("#forget-run [role=progressbar]").wait_for()
    page.locator("#forget-run [role=progressbar]:not([aria-label^='Reading'])").wait_for()
    page.click("#forget-stop")  # while pictures are read there is nothing to keep yet
    page.locator("#forget-recipe").wait_for()
    assert text.result.HEADING in page.locator("#forget-run").inner_text()
    assert "atlas adapt negate" in page.locator("#forget-lines").inner_text()
    slide_to(page, 50)
    page.locator("#forget-pictures .at-pair").nth(11).wait_for()
    wait_for_images(page)
    page.screenshot(path=artefacts / f"forget-own-{width}.png", full_page=True)
    assert page.locator("#forget-alert [role=alert]").count() == 0


def slide_to(page, strength):
    field = page.locator("#forget-strength input[type=number]")
    field.fill(str(strength))
    field.press("Tab")
