"""Trying in a real browser: any image is answered at once, before beside now, and a mistake is corrected."""

from __future__ import annotations

import re

import pytest

from app import text
from app.examples import ASK_EXAMPLES, FEW_SHOT_EXAMPLES, FOLDER
from tests.browser.steps import (
    ANSWERS,
    FIRST_WORDS,
    adapt,
    ask_about,
    panel,
    press_tab_until,
    start_own,
    try_empty,
    wait_for_answers,
    wait_for_images,
    wait_for_result,
)

pytestmark = pytest.mark.browser

HAND_OVER = """([type, field]) => {
    const box = new DataTransfer();
    const canvas = new OffscreenCanvas(32, 32);
    canvas.getContext("2d");
    return canvas.convertToBlob({ type: "image/png" }).then((blob) => {
        box.items.add(new File([blob], type + ".png", { type: "image/png" }));
        const options = { bubbles: true, cancelable: true, [field]: box };
        const event = type === "drop" ? new DragEvent(type, options) : new ClipboardEvent(type, options);
        document.querySelector("h1").dispatchEvent(event);
    });
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_an_image_dropped_after_learning_is_answered_corrected_and_learned_from(
    visit, colours, draw, artefacts, width
):
    page = visit(width=width)
    start_own(page, colours, method="text-probe")
    adapt(page, images=2)
    page.set_input_files("#samples input[type=file]", draw("purple.png", "purple"))
    page.locator(".at-badge").get_by_text(text.trying.FRESH).wait_for()
    assert page.locator(ANSWERS).count() == 3
    card = page.locator(ANSWERS).first
    assert [title.split()[0] for title in card.locator("h3").all_inner_texts()] == [
        text.result.BEFORE,
        text.result.NOW,
    ]
    assert text.trying.answered(1, 0).split(" in ")[0] in page.locator("#status").inner_text()
    page.screenshot(path=artefacts / f"try-dropped-{width}.png", full_page=True)
    card.locator("select").select_option("red")
    page.locator("#alert").get_by_text(text.trying.corrected("red", 4)).wait_for()
    page.locator("#learn-again").wait_for()
    page.screenshot(path=artefacts / f"try-corrected-{width}.png", full_page=True)
    page.click("#learn-again")
    page.locator("#learn-again").wait_for(state="hidden")
    wait_for_result(page, 3)
    panel(page, text.teach.TAB)
    assert page.locator("#pictures-1 .thumbnail-item").count() == 4
    assert "4" in page.locator("#count-1").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_an_image_dropped_or_pasted_anywhere_is_answered_by_the_example(visit):
    page = visit()
    panel(page, text.trying.TAB)
    taught = len(FEW_SHOT_EXAMPLES[0].request.samples)
    page.locator(ANSWERS).nth(taught - 1).wait_for()
    for place, (kind, field) in enumerate((("drop", "dataTransfer"), ("paste", "clipboardData"))):
        page.evaluate(HAND_OVER, [kind, field])
        page.locator(ANSWERS).nth(taught + place).wait_for()
        assert text.trying.FRESH in page.locator(ANSWERS).first.inner_text()


def test_an_image_is_answered_while_the_page_is_still_learning(visit, colours, draw):
    page = visit()
    start_own(page, colours, steps=200, method=None)
    page.click("#adapt")
    page.get_by_text("Learning: step").wait_for()
    page.set_input_files("#samples input[type=file]", draw("teal.png", "teal"))
    page.locator(ANSWERS).nth(2).wait_for()
    assert page.locator("#stop-adapting").is_visible(), "the run had ended"
    page.click("#stop-adapting")
    wait_for_result(page, 3)


@pytest.mark.parametrize("width", [1280, 390])
def test_before_teaching_images_are_matched_to_words_and_an_example_is_one_key_away(visit, width):
    page = visit(width=width)
    try_empty(page)
    assert text.trying.NOTHING_TAUGHT in page.locator("#compare").inner_text()
    example = ASK_EXAMPLES[2]
    press_tab_until(
        page, f"it.dataset.example === '2' && it.getAttribute('aria-label').includes('{example.title}')"
    )
    page.keyboard.press("Enter")
    wait_for_answers(page, len(example.files))
    assert page.locator(FIRST_WORDS).all_inner_texts() == ["horse", "photographer"]
    assert page.input_value("#classes textarea") == example.class_text
    wait_for_images(page)


def test_own_files_are_answered_a_bad_one_is_named_and_nothing_is_lost(visit, tmp_path):
    page = visit()
    try_empty(page)
    ask_about(page, words="cat, dog")
    page.get_by_role("alert").filter(has_text=text.ask.NO_IMAGES).wait_for()
    (tmp_path / "words.jpg").write_text("only words")
    ask_about(page, FOLDER / "cat.jpg", tmp_path / "words.jpg", words="cat, Cat")
    page.get_by_role("alert").filter(has_text="stands twice").wait_for()
    assert page.locator("#samples .thumbnail-item").count() == 2
    evil = ["<img src=x onerror=alert(1)>", "${1+1}", "{{value}}"]
    page.on("dialog", lambda dialog: pytest.fail("a class name was run"))
    ask_about(page, words="\n".join(["cat", *evil]))
    wait_for_answers(page, 1)
    assert page.get_by_role("alert").filter(has_text="words.jpg").is_visible()
    assert page.locator(".at-card figcaption").all_inner_texts() == ["cat.jpg"]
    assert page.locator(FIRST_WORDS).all_inner_texts() == ["cat"]
    assert set(evil) < set(page.locator(".at-card .at-label").all_inner_texts())
    assert re.fullmatch(r"[<>]?\d+%", page.locator(".at-card .at-number").first.inner_text())


def test_a_long_question_shows_progress_and_can_be_stopped(visit, draw):
    page = visit()
    try_empty(page)
    page.fill("#classes textarea", "cat, dog")
    files = [draw(f"{n}.png", colour=(5 * n, 90, 60), size=(1200, 900)) for n in range(40)]
    page.set_input_files("#samples input[type=file]", files)
    page.wait_for_selector("#stop", state="visible")
    assert "of 40 done" in page.locator("#status").inner_text()
    page.click("#stop")
    page.get_by_text(text.ask.STOPPED).wait_for()
    page.locator("#stop").wait_for(state="hidden")
