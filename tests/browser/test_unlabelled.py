"""Photos without labels, adapted to in a real browser at both widths, and the link with their names."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from app import text
from app.examples import UNLABELLED_EXAMPLES
from tests.browser.steps import ANSWERS, panel, start_empty, upload, wait_for_images

pytestmark = pytest.mark.browser

NAMES = "#unlabelled-names textarea"


def choose_unlabelled(page):
    start_empty(page)
    page.locator("#labels").get_by_text(text.teach.UNLABELLED).click()
    page.locator("#unlabelled-adapt").wait_for()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_roll_of_photos_is_adapted_to_compared_and_taken_away(visit, colours, artefacts, width):
    page = visit(width=width)
    choose_unlabelled(page)
    page.click("#unlabelled-adapt")
    page.get_by_role("alert").filter(has_text=text.unlabelled.NO_IMAGES).wait_for()
    files = [file for some in colours[0].values() for file in some]
    page.set_input_files("#unlabelled input[type=file]", files)
    page.locator("#unlabelled .thumbnail-item").nth(len(files) - 1).wait_for()
    page.fill(NAMES, "red, blue")
    page.click("#unlabelled-adapt")
    page.locator("#run .at-verdict").wait_for()
    page.locator(ANSWERS).nth(len(files) - 1).wait_for()
    wait_for_images(page)
    assert page.locator("#teach-alert [role=alert], #alert [role=alert]").count() == 0
    page.screenshot(path=artefacts / f"unlabelled-adapted-{width}.png", full_page=True)
    panel(page, text.result.TAB_TAKE)
    page.wait_for_function("document.querySelector('#lines').textContent.includes('adapt test-time')")
    link = page.locator("#lines .at-link a").get_attribute("href")
    assert link.startswith("?word=red&word=blue")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_link_opens_on_this_form_and_a_flat_zip_fills_in_its_photos(visit, colours, tmp_path):
    page = visit(query="?word=otter&word=sea+lion", ready=("#unlabelled-adapt",))
    assert page.get_by_label(text.teach.UNLABELLED).is_checked()
    page.wait_for_function(f"document.querySelector('{NAMES}').value === 'otter, sea lion'")
    with zipfile.ZipFile(tmp_path / "roll.zip", "w") as packed:
        for file in colours[0]["red"]:
            packed.write(file, Path(file).name)
    upload(page, "#unlabelled-zip", tmp_path / "roll.zip")
    page.locator("#unlabelled .thumbnail-item").nth(2).wait_for()
    assert page.locator("#teach-alert [role=alert], #alert [role=alert]").count() == 0


def test_who_knows_that_every_name_is_there_says_so_with_a_tick(visit):
    page = visit(query="?word=otter&word=seal&objective=entropy%2Bbalanced", ready=("#unlabelled-adapt",))
    tick = page.get_by_label(text.unlabelled.ALL_PRESENT_LABEL)
    page.wait_for_function("document.querySelector('#unlabelled-every input').checked")
    page.click("#unlabelled-settings button")
    method = page.locator("#unlabelled-settings input[role=combobox]").first
    assert method.input_value() == text.unlabelled.METHOD_NAMES["entropy+balanced"]
    tick.uncheck()
    page.wait_for_function(
        "name => document.querySelector('#unlabelled-settings input[role=combobox]').value === name",
        arg=text.unlabelled.METHOD_NAMES["auto"],
    )
    tick.check()
    page.wait_for_function(
        "name => document.querySelector('#unlabelled-settings input[role=combobox]').value === name",
        arg=text.unlabelled.METHOD_NAMES["entropy+balanced"],
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_one_click_adapts_to_the_first_example_and_counts_what_is_right(visit, artefacts, width):
    page = visit(width=width)
    choose_unlabelled(page)
    example = UNLABELLED_EXAMPLES[0]
    page.get_by_role("button", name=text.unlabelled.example_label(example.title, example.classes)).click()
    page.locator("#run .at-verdict").filter(has_text="answers changed").wait_for()
    assert page.input_value("#classes textarea") == ", ".join(example.classes)
    pictures = page.locator("#compare .at-pair")
    pictures.nth(len(example.images) - 1).wait_for(state="attached")
    assert not pictures.last.is_visible(), "what is as before is closed at first"
    page.locator("#compare summary").first.click()
    pictures.last.wait_for()
    wait_for_images(page)
    assert page.locator("#teach-alert [role=alert], #alert [role=alert]").count() == 0
    page.screenshot(path=artefacts / f"unlabelled-example-{width}.png", full_page=True)
