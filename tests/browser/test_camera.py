"""The camera, with Chromium's fake one: a class is recorded, and what it sees is answered live."""

from __future__ import annotations

import pytest

from app import text
from tests.browser.steps import ANSWERS, NAME, panel, start_empty

pytestmark = pytest.mark.browser

PREVIEW = """(part) => {
    const video = document.querySelector(part + " video");
    const { width, height, left, top } = video.getBoundingClientRect();
    const above = document.elementFromPoint(left + width / 2, top + height / 2);
    return { width, height, plays: video.readyState >= 2, covered: above !== video };
}"""


@pytest.fixture
def visit(visit):
    def open_page(**how):
        page = visit(**how)
        page.context.grant_permissions(["camera", "clipboard-read", "clipboard-write"])
        return page

    return open_page


def wait_for_preview(page, part):
    page.wait_for_function("part => document.querySelector(part + ' video')?.readyState >= 2", arg=part)
    page.locator(f"{part} video").scroll_into_view_if_needed()
    seen = page.evaluate(PREVIEW, part)
    assert min(seen["width"], seen["height"]) >= 240, seen
    assert not seen["covered"]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_class_is_recorded_while_a_button_is_held_and_another_image_is_pasted(visit, width, artefacts):
    page = visit(width=width)
    start_empty(page)
    page.fill(NAME.format(1), "green field")
    page.get_by_role("button", name=text.camera.record_label(1)).click()
    record = page.locator("#camera-1 [data-camera=record]")
    wait_for_preview(page, "#camera-1")
    page.screenshot(path=artefacts / f"camera-record-{width}.png")
    record.hover()
    page.mouse.down()
    page.wait_for_function(
        "said => document.querySelector('#camera-1 [role=status]').textContent === said",
        arg=text.camera.MESSAGES["recording"].format(count=2),
    )
    page.mouse.up()
    recorded = page.locator("#camera-1 [role=status]").filter(has_text="recorded")
    recorded.wait_for()
    count = int(recorded.inner_text().split()[0])
    assert count >= 2, "the fake camera's clock turns, so frames differ"
    page.locator("#pictures-1 .thumbnail-item").nth(count - 1).wait_for()
    page.get_by_role("button", name=text.camera.CLOSE).click()
    assert not page.locator("#camera-1 video").is_visible()
    page.evaluate(
        """() => new OffscreenCanvas(32, 32).getContext("2d").canvas.convertToBlob({ type: "image/png" })
            .then((blob) => navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]))"""
    )
    page.locator("#pictures-1").get_by_label("Paste from clipboard").click()
    page.locator("#pictures-1 .thumbnail-item").nth(count).wait_for()
    page.wait_for_function(
        "said => document.querySelector('#count-1').textContent.includes(said)",
        arg=text.teach.count(count + 1),
    )


def test_a_keyboard_alone_records_too(visit):
    page = visit()
    start_empty(page)
    record = page.get_by_role("button", name=text.camera.record_label(2))
    record.focus()
    page.keyboard.press("Enter")
    wait_for_preview(page, "#camera-2")
    page.keyboard.down(" ")
    page.locator("#camera-2 [role=status]").filter(has_text="1").wait_for()
    page.keyboard.up(" ")
    page.locator("#pictures-2 .thumbnail-item").first.wait_for()


@pytest.mark.parametrize("width", [1280, 390])
def test_what_the_camera_sees_is_answered_live_and_can_be_kept(visit, width, artefacts):
    page = visit(width=width)
    panel(page, text.trying.TAB)
    before = page.locator(ANSWERS).count()
    page.get_by_role("button", name=text.camera.LIVE).click()
    wait_for_preview(page, "#live")
    page.wait_for_function(
        "Number(document.querySelector('#live-answer [data-frame]')?.dataset.frame ?? 0) >= 4"
    )
    titles = page.locator("#live-answer h3").all_inner_texts()
    assert titles == [text.result.BEFORE, text.result.NOW]
    page.screenshot(path=artefacts / f"camera-live-{width}.png")
    page.get_by_role("button", name=text.camera.TAKE).click()
    page.locator(ANSWERS).nth(before).wait_for()
    panel(page, text.teach.TAB)
    page.wait_for_function("!document.querySelector('#live video')?.srcObject")
