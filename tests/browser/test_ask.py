"""What a visitor does on the tab that only asks, done in a real browser."""

from __future__ import annotations

import re

import pytest

from app import text
from app.examples import ASK_EXAMPLES, FOLDER
from tests.browser.steps import (
    FIRST_WORDS,
    ask_about,
    panel,
    press_tab_until,
    wait_for_answers,
    wait_for_pictures,
)

pytestmark = pytest.mark.browser


@pytest.fixture
def visit(visit):
    def open_tab(**how):
        page = visit(**how)
        panel(page, text.ask.TAB)
        page.wait_for_selector(".at-card")
        return page

    return open_tab


@pytest.mark.parametrize("width", [1280, 390])
def test_the_tab_opens_on_an_answered_example_and_the_next_is_one_key_away(visit, width):
    page = visit(width=width)
    assert page.locator(FIRST_WORDS).all_inner_texts() == ["cat", "coffee", "rocket"]
    assert text.ask.OPENING in page.locator("#status").inner_text()
    assert page.locator("#banner").count() == 0
    example = ASK_EXAMPLES[2]
    press_tab_until(
        page, f"it.dataset.example === '2' && it.getAttribute('aria-label').includes('{example.title}')"
    )
    page.keyboard.press("Enter")
    wait_for_answers(page, len(example.files))
    assert page.locator(FIRST_WORDS).all_inner_texts() == ["horse", "photographer"]
    assert page.input_value("#classes textarea") == example.class_text
    assert page.locator("#images .thumbnail-item").count() == len(example.files)
    wait_for_pictures(page)
    page.focus("#classes textarea")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "ask"


def test_own_files_are_answered_a_bad_one_is_named_and_nothing_is_lost(visit, draw, tmp_path):
    page = visit()
    ask_about(page, words="cat, dog")
    page.get_by_role("alert").filter(has_text=text.ask.NO_IMAGES).wait_for()
    (tmp_path / "words.jpg").write_text("only words")
    ask_about(page, FOLDER / "cat.jpg", tmp_path / "words.jpg", words="cat, Cat")
    page.get_by_role("alert").filter(has_text="stands twice").wait_for()
    assert page.locator("#images .thumbnail-item").count() == 2
    evil = ["<img src=x onerror=alert(1)>", "${1+1}", "{{value}}"]
    page.on("dialog", lambda dialog: pytest.fail("a class name was run"))
    ask_about(page, words="\n".join(["cat", *evil]))
    wait_for_answers(page, 1)
    assert page.get_by_role("alert").filter(has_text="words.jpg").is_visible()
    assert page.locator(".at-card figcaption").all_inner_texts() == ["cat.jpg"]
    assert page.locator(FIRST_WORDS).all_inner_texts() == ["cat"]
    assert set(evil) < set(page.locator(".at-card .at-label").all_inner_texts())
    assert re.fullmatch(r"[<>]?\d+%", page.locator(".at-card .at-number").first.inner_text())


def test_a_picture_dropped_or_pasted_anywhere_joins_the_others(visit):
    page = visit()
    hand_over = """([type, field]) => {
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
    page.evaluate(hand_over, ["drop", "dataTransfer"])
    page.locator("#images .thumbnail-item").first.wait_for()
    page.evaluate(hand_over, ["paste", "clipboardData"])
    page.locator("#images .thumbnail-item").nth(1).wait_for()


def test_a_long_question_shows_progress_and_can_be_stopped(visit, draw):
    page = visit()
    files = [draw(f"{n}.png", colour=(5 * n, 90, 60), size=(1200, 900)) for n in range(40)]
    ask_about(page, *files, words="cat, dog")
    page.wait_for_selector("#stop", state="visible")
    assert "of 40 done" in page.locator("#status").inner_text()
    page.click("#stop")
    page.get_by_text(text.ask.STOPPED).wait_for()
    assert page.locator("#stop").count() == 0
