"""What goes beyond one visitor with a mouse: a link, a keyboard, others who wait, a page that is closed."""

from __future__ import annotations

import pytest

from app import text
from app.examples import FEW_SHOT_EXAMPLES
from app.limits import LIMITS
from tests.browser.steps import (
    STEPS,
    panel,
    press_tab_until,
    start_own,
    upload,
    wait_for_names,
    wait_for_result,
    wait_until_in_sight,
    wait_until_still,
)

pytestmark = pytest.mark.browser

# Whether no part of the page that hides what hangs out of it is smaller than the line.
NOT_CUT_OFF = """line => {
    const { top, bottom } = line.getBoundingClientRect();
    for (let part = line.parentElement; part; part = part.parentElement) {
        const frame = part.getBoundingClientRect();
        const cutsOff = frame.top > top || frame.bottom < bottom;
        if (cutsOff && getComputedStyle(part).overflowY === "hidden") return false;
    }
    return true;
}"""


def test_a_link_brings_the_names_and_settings_and_no_picture(visit):
    query = "?class=otter&class=sea+lion&method=text-probe&steps=40&templates=my+%7B%7D."
    page = visit(query=query, ready=("#adapt",))  # the form, not the first screen
    wait_for_names(page, ["otter", "sea lion"])
    assert page.locator(".at-class .thumbnail-item").count() == 0
    page.click("#settings button")
    assert page.locator(STEPS).first.input_value() == "40"
    method = page.locator("#settings input[role=combobox]").first
    assert method.input_value() == text.teach.METHOD_NAMES["text-probe"]
    assert page.locator("#templates input").input_value() == "my {}.", "a sentence of one's own"
    page.click("#adapt")
    page.get_by_role("alert").filter(has_text=text.teach.no_images("otter")).wait_for()


def test_a_keyboard_alone_opens_an_example_looks_inside_and_turns_a_task_vector(visit):
    page = visit()
    press_tab_until(page, "it.dataset.example === '1' && it.closest('#lessons')")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "names => document.querySelector('#classes textarea')?.value === names",
        arg=", ".join(FEW_SHOT_EXAMPLES[1].request.classes),
    )
    tab = f"it.getAttribute('role') === 'tab' && it.textContent.trim() === '{text.result.TAB_COMPARE}'"
    press_tab_until(page, tab)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator("#effects tbody tr").first.wait_for()
    wait_until_still(page)  # the sliders follow the order of effects
    press_tab_until(page, "it.type === 'range' && it.closest('#turn-1')")
    page.keyboard.press("ArrowLeft")
    page.locator("#turned .at-pair").first.wait_for()


def test_a_keyboard_alone_empties_the_form_hands_over_a_zip_and_is_soon_at_the_button(visit, archive):
    page = visit()
    press_tab_until(page, "it.id === 'own'")
    page.keyboard.press("Enter")
    wait_for_names(page, ["", ""])
    page.focus("h1, body")
    presses = press_tab_until(page, "it.id === 'lesson-zip'")
    upload(page, "#lesson-zip", archive, key="Enter")
    wait_for_names(page, ["blue", "red"])
    presses += press_tab_until(page, "it.id === 'adapt'")
    assert presses <= 25
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_who_leaves_in_the_middle_of_a_run_is_asked_first(visit, colours):
    page = visit(leaves=True)
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.reload()
    page.wait_for_selector("#own")
    assert asked == []
    start_own(page, colours, steps=LIMITS.steps, method="atlas+text-probe")
    page.click("#adapt")
    page.get_by_text("Learning: step").wait_for()
    page.reload()
    page.wait_for_selector("#own")
    assert asked == ["beforeunload"]


def test_who_waits_sees_the_place_in_the_queue_and_a_closed_page_frees_the_lane(visit, colours):
    first, second, third = visit(), visit(), visit()
    start_own(first, colours, steps=LIMITS.steps, method="atlas+text-probe")
    for other in (second, third):
        start_own(other, colours, method="atlas+text-probe")
    first.click("#adapt")
    first.get_by_text("Learning: step").wait_for()
    for other in (second, third):
        other.click("#adapt")
        other.locator("#run").get_by_text("queue:").wait_for()
        assert other.locator("#run").get_by_text("queue:").evaluate(NOT_CUT_OFF)
        wait_until_in_sight(other, "#run")
    second.close()  # while it waits
    first.close()  # in the middle of its run
    wait_for_result(third, 2)
    assert text.result.STOPPED_NOTE not in third.locator("#run").inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_who_waits_can_leave_the_queue_and_begin_again(visit, colours, width):
    first, second = visit(), visit(width=width)
    start_own(first, colours, steps=LIMITS.steps, method="atlas+text-probe")
    start_own(second, colours, method="text-probe")
    first.click("#adapt")
    first.get_by_text("Learning: step").wait_for()
    for _ in range(2):
        panel(second, text.teach.TAB)
        second.click("#adapt")
        wait_until_in_sight(second, "#leave")
        second.click("#leave")
        second.get_by_role("alert").filter(has_text=text.page.LEFT).wait_for()
        second.locator("#leave").wait_for(state="hidden")
    assert "Error" not in second.locator("#run").inner_text()
    panel(second, text.teach.TAB)
    assert second.locator(".at-class .thumbnail-item").count() > 0, "what was given is gone"
    assert first.locator("#stop-adapting").is_visible(), "another visitor's run was ended"
    second.click("#adapt")
    second.locator("#leave").wait_for()
    first.click("#stop-adapting")
    wait_for_result(second, 2)
    second.locator("#leave").wait_for(state="hidden")
