"""The visitor's way on the tab that learns, in a real browser with real files, at a desk and on a phone."""

from __future__ import annotations

import pytest

from app import text
from app.examples import FEW_SHOT_EXAMPLES
from app.limits import LIMITS
from tests.browser.steps import (
    NAME,
    choose_method,
    panel,
    start_empty,
    start_own,
    upload,
    wait_for_images,
    wait_for_names,
    wait_for_result,
    wait_until_in_sight,
    wait_until_still,
)

pytestmark = pytest.mark.browser


def wait_for_summary(page, said):
    page.wait_for_function(
        "said => document.querySelector('#lesson-summary').textContent.includes(said)", arg=said
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_the_way_from_own_images_over_the_sliders_to_a_recipe_and_back(
    visit, colours, artefacts, tmp_path, width
):
    page = visit(width=width)

    def keep(step):
        page.screenshot(path=artefacts / f"way-{step}-{width}.png", full_page=True)

    start_own(page, colours)
    wait_for_summary(page, "2 classes, 6 images")
    keep("1-lesson")
    wait_until_in_sight(page, "#adapt")  # it sticks to the lower edge
    page.click("#adapt")
    page.locator("#run [role=progressbar]").wait_for()
    keep("2-learning")
    wait_for_result(page, 2)
    wait_for_images(page)
    assert page.locator("#teach-alert [role=alert]").count() == 0
    page.locator("#run summary").click()
    assert "Zero-shot" in page.locator("#run .at-estimates").inner_text()
    keep("3-compare")
    panel(page, text.teach.TAB)
    choose_method(page, "atlas+text-probe")
    page.click("#adapt")
    page.get_by_text("was asked for").wait_for()
    assert page.locator("#compare h3").first.inner_text().startswith(text.result.BEFORE)
    look_inside(page)
    keep("4-inside")
    take_away(page, tmp_path)
    keep("5-take")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def look_inside(page):
    panel(page, text.result.TAB_INSIDE)
    page.locator("#effects tbody tr").first.wait_for()
    wait_until_still(page)  # the sliders follow the order of effects
    slider = page.locator("#turn-1 input[type=number]")
    slider.fill("0")
    slider.press("Tab")
    page.locator("#turned .at-pair").nth(1).wait_for()
    page.click("#turn-back")
    page.wait_for_function("!document.querySelector('#turned .at-pair')")
    page.locator("#turn-other input").click()
    page.get_by_role("option").nth(1).click()
    slider = page.locator("#turn-other-strength input[type=number]")
    slider.fill("0")
    slider.press("Tab")
    page.locator("#turned .at-pair").nth(1).wait_for()
    page.click("#inside-expert button")
    page.locator("#map svg:visible").first.wait_for()
    assert page.locator("#task-vectors tbody tr").count() > 1
    assert not page.locator("#turn-order").is_visible(), "that box is for the page, not for its reader"
    page.locator("#map-by").get_by_text(text.inside.BY_NAMES["kind"]).click()
    page.wait_for_function("document.querySelector('#map').textContent.includes('kind of block')")


def take_away(page, folder):
    panel(page, text.result.TAB_TAKE)
    page.wait_for_function("document.querySelector('#lines').textContent.includes('blue-red')")
    with page.expect_download() as caught:
        page.click("#recipe")
    recipe = folder / caught.value.suggested_filename
    caught.value.save_as(recipe)
    assert recipe.stat().st_size < 200_000
    page.click("#make-weights")
    page.locator("#weights:visible").wait_for()
    link = page.locator("#lines .at-link a").get_attribute("href")
    assert link.startswith("?class=blue&class=red")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for button, wanted in ((".at-copied .at-copy", "import atlas_engine"), (".at-link .at-copy", link)):
        page.locator(f"#lines {button}").first.click()
        page.locator("#lines").get_by_text(text.page.COPIED).first.wait_for()
        page.wait_for_function(
            "wanted => navigator.clipboard.readText().then((words) => words.includes(wanted))", arg=wanted
        )
    page.click("#share")
    shared = page.locator("#shared-link a").get_attribute("href")
    assert shared.startswith("?shared=")
    upload(page, "#bring", recipe)
    page.get_by_text(text.result.BROUGHT).wait_for()
    page.goto(page.url.partition("?")[0] + shared)
    page.locator("#run").get_by_text(text.share.SHARED).wait_for()
    assert page.input_value("#classes textarea") == "blue, red"
    panel(page, text.result.TAB_TAKE)
    (folder / "mine.safetensors").write_bytes(b"MZ" * 100)
    upload(page, "#bring", folder / "mine.safetensors")
    page.get_by_role("alert").filter(has_text="mine.safetensors").wait_for()


def test_a_zip_fills_the_rows_and_another_the_samples_and_rows_come_and_go(visit, archive):
    page = visit()
    start_empty(page)
    upload(page, "#lesson-zip", archive)
    page.wait_for_function("document.querySelectorAll('.at-class').length === 2")
    page.locator("#pictures-2 .thumbnail-item").nth(2).wait_for()
    wait_for_summary(page, "2 classes, 6 images")
    page.drag_and_drop("#pictures-1 .thumbnail-item img", "#class-2 .at-class-head")
    page.locator("#pictures-2 .thumbnail-item").nth(3).wait_for()
    assert page.locator("#pictures-1 .thumbnail-item").count() == 2
    wait_for_summary(page, "2 classes, 6 images")
    panel(page, text.trying.TAB)
    upload(page, "#samples-zip", archive)
    page.wait_for_function("document.querySelectorAll('#samples .thumbnail-item').length === 6")
    assert "red" in page.locator("#samples").inner_text()
    panel(page, text.teach.TAB)
    page.click("#add-class")
    page.locator("#class-3").wait_for()
    page.get_by_role("button", name=text.teach.remove_label(1)).click()
    wait_for_names(page, ["red", ""])


def test_an_example_counts_its_classes_and_images_and_so_does_the_next(visit):
    page = visit()
    for place in (1, 0):
        page.click(f"#lessons [data-example='{place}']")
        page.locator("#compare .at-pair").first.wait_for()
        rows = FEW_SHOT_EXAMPLES[place].request.rows
        panel(page, text.teach.TAB)
        page.locator(f"#pictures-{len(rows)} .thumbnail-item").last.wait_for()
        wait_for_summary(page, text.teach.rows_summary([(row.name, len(row.paths)) for row in rows]))
        counts = [text.teach.count(len(row.paths)) for row in rows]
        assert page.locator(".at-class .at-count:visible").all_inner_texts() == counts
        page.click("#back")


@pytest.mark.parametrize("width", [1280, 390])
def test_what_cannot_be_learned_gets_a_sentence_and_a_long_run_is_stopped(visit, colours, tmp_path, width):
    page = visit(width=width)
    page.on("dialog", lambda dialog: pytest.fail("a class name was run"))
    start_own(page, colours, steps=LIMITS.steps, method="atlas+text-probe")
    page.fill(NAME.format(2), "red")
    page.click("#adapt")
    page.get_by_role("alert").filter(has_text="twice").wait_for()
    assert page.locator("#pictures-1 .thumbnail-item").count() == 3
    (tmp_path / "words.jpg").write_text("only words")
    page.set_input_files("#pictures-2 input[type=file]", [str(tmp_path / "words.jpg")])
    page.locator("#pictures-2 .thumbnail-item").nth(3).wait_for()
    evil = "<img src=x onerror=alert(1)>"
    page.fill(NAME.format(2), evil)
    page.click("#adapt")
    page.get_by_role("alert").filter(has_text="words.jpg").wait_for()
    page.get_by_text("Learning: step").wait_for()
    wait_until_in_sight(page, "#run", "#stop-adapting")  # though the button is far below
    page.click("#stop-adapting")
    wait_for_result(page, 2)
    assert text.result.STOPPED_NOTE in page.locator("#run").inner_text()
    assert evil in page.locator("#compare .at-label").all_inner_texts()
