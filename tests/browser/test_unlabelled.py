"""Photos without labels, adapted to in a real browser on a phone, and the link that carries their names."""

from __future__ import annotations

import pytest

from app import roll_text, text
from app.examples import ROLLS
from tests.browser.steps import panel, wait_for_pictures

pytestmark = pytest.mark.browser

NAMES = "#roll-names textarea"


def test_a_roll_of_photos_is_adapted_to_compared_and_taken_away(visit, colours, artefacts):
    page = visit(width=390)
    panel(page, roll_text.TAB)
    page.click("#roll-adapt")
    page.get_by_role("alert").filter(has_text=roll_text.NO_PHOTOS).wait_for()
    files = [file for some in colours[0].values() for file in some]
    page.set_input_files("#roll input[type=file]", files)
    page.locator("#roll .thumbnail-item").nth(len(files) - 1).wait_for()
    page.fill(NAMES, "red, blue")
    page.click("#roll-adapt")
    page.locator("#roll-run .at-verdict").wait_for()
    page.locator("#roll-compare .at-pair").nth(len(files) - 1).wait_for()
    wait_for_pictures(page)
    assert page.locator("#roll-alert [role=alert]").count() == 0
    page.screenshot(path=artefacts / "roll-adapted-390.png", full_page=True)
    page.locator("#roll-result").get_by_role("tab", name=text.TAB_TAKE, exact=True).click()
    page.wait_for_function("document.querySelector('#roll-lines').textContent.includes('adapt test-time')")
    link = page.locator("#roll-lines .at-link a").get_attribute("href")
    assert link.startswith("?word=red&word=blue")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_example_fills_in_photos_and_names_and_a_link_opens_on_this_tab(visit):
    page = visit(query="?word=otter&word=sea+lion", ready=("#roll-adapt",))
    assert page.get_by_role("tab", name=roll_text.TAB).get_attribute("aria-selected") == "true"
    page.wait_for_function(f"document.querySelector('{NAMES}').value === 'otter, sea lion'")
    example = ROLLS[0]
    page.get_by_role("button", name=roll_text.example_label(example.title, example.classes)).click()
    page.locator("#roll .thumbnail-item").nth(len(example.photos) - 1).wait_for()
    page.wait_for_function(
        "([field, names]) => document.querySelector(field).value === names",
        arg=[NAMES, ", ".join(example.classes)],
    )


def test_the_first_example_is_adapted_to_and_counted(visit, artefacts):
    page = visit()
    panel(page, roll_text.TAB)
    example = ROLLS[0]
    page.get_by_role("button", name=roll_text.example_label(example.title, example.classes)).click()
    page.locator("#roll .thumbnail-item").nth(len(example.photos) - 1).wait_for()
    page.click("#roll-adapt")
    page.locator("#roll-run .at-verdict").filter(has_text="answers changed").wait_for()
    page.locator("#roll-compare .at-pair").nth(len(example.photos) - 1).wait_for()
    wait_for_pictures(page)
    assert page.locator("#roll-alert [role=alert]").count() == 0
    page.screenshot(path=artefacts / "roll-example-1280.png", full_page=True)
